// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/tree_conversion.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

namespace foretoken::rpc {
namespace {

using speculation::TokenTree;

constexpr WireTreeLimits kLimits{.num_tokens = 100, .max_nodes = 8, .proposers = 4};

v1::TokenTree GoodMessage() {
  return ToProto({.position = 7,
                  .token_ids = {10, 11, 12},
                  .parents = {-1, 0, -1},
                  .chances = {.5f, 1.f, .25f},
                  .proposers = {1, 1, 1}},
                 42);
}

TEST(TreeConversion, ReturnsTheTreeWithTheGivenProposerBits) {
  const v1::TokenTree message = GoodMessage();
  EXPECT_EQ(message.session_id(), 42);
  const absl::StatusOr<TokenTree> tree = FromProto(message, kLimits);
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(tree->position, 7);
  EXPECT_EQ(tree->token_ids, (std::vector<int32_t>{10, 11, 12}));
  EXPECT_EQ(tree->parents, (std::vector<int32_t>{-1, 0, -1}));
  EXPECT_EQ(tree->chances, (std::vector<float>{.5f, 1.f, .25f}));
  EXPECT_EQ(tree->proposers, (std::vector<uint32_t>{4, 4, 4}));
}

TEST(TreeConversion, AnEmptyTreeIsATree) {
  v1::TokenTree message;
  message.set_position(3);
  const absl::StatusOr<TokenTree> tree = FromProto(message, kLimits);
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(tree->num_nodes(), 0);
  EXPECT_EQ(tree->position, 3);
}

TEST(TreeConversion, EveryKnownDrawMethodIsTaken) {
  for (int method = 0; method < v1::DrawMethod_ARRAYSIZE; ++method) {
    v1::TokenTree message = GoodMessage();
    message.set_draw_method(static_cast<v1::DrawMethod>(method));
    EXPECT_TRUE(FromProto(message, kLimits).ok());
  }
}

struct Lie {
  std::string name;
  std::function<void(v1::TokenTree&)> tell;
  std::string want;
};

class LyingTree : public ::testing::TestWithParam<Lie> {};

TEST_P(LyingTree, IsRefusedByName) {
  v1::TokenTree message = GoodMessage();
  GetParam().tell(message);
  const absl::StatusOr<TokenTree> tree = FromProto(message, kLimits);
  EXPECT_EQ(tree.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(tree.status().message().find(GetParam().want), absl::string_view::npos) << tree.status();
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, LyingTree,
    ::testing::Values(
        Lie{"TooLarge",
            [](auto& m) {
              for (int i = 0; i < 9; ++i) m.add_token_ids(i);
            },
            "at most 8 nodes, got 12"},
        Lie{"ParentsMissing", [](auto& m) { m.clear_parents(); }, "3 token_ids, 0 parents"},
        Lie{"ChancesTooMany", [](auto& m) { m.add_chances(1); }, "4 chances"},
        Lie{"IdBeyondTheVocabulary", [](auto& m) { m.set_token_ids(1, 100); },
            "token id expected in [0, 100), got 100"},
        Lie{"IdBeyondInt32", [](auto& m) { m.set_token_ids(1, 4'000'000'000u); }, "got 4000000000"},
        Lie{"ParentOfItself", [](auto& m) { m.set_parents(1, 1); }, "parent expected in [-1, 1), got 1"},
        Lie{"ParentBelowTheRoot", [](auto& m) { m.set_parents(0, -2); }, "got -2"},
        Lie{"ChanceNotANumber", [](auto& m) { m.set_chances(2, std::numeric_limits<float>::quiet_NaN()); }, "got nan"},
        Lie{"ChanceAboveOne", [](auto& m) { m.set_chances(2, 1.5f); }, "got 1.5"},
        Lie{"TwinSiblings", [](auto& m) { m.set_token_ids(2, 10); }, "siblings"},
        Lie{"UnknownDrawMethod", [](auto& m) { m.set_draw_method(static_cast<v1::DrawMethod>(77)); }, "draw_method"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace foretoken::rpc
