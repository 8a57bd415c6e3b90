// SPDX-License-Identifier: Apache-2.0
// Token trees from the wire. If this test fails, a broken or hostile proposer can crash the verifier, or change the
// distribution of its output.
#include "common/rpc/tree_conversion.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "common/rpc/draft_conversion.h"
#include "common/rpc/proposal_protocol.h"

namespace foretoken::rpc {
namespace {

using speculation::DraftDistribution;
using speculation::TokenTree;
using speculation::TreeNode;

constexpr WireTreeLimits kLimits{.num_tokens = 100, .max_nodes = 8, .proposers = 4};

v1::TokenTree GoodMessage() {
  return ToProto({.position = 7, .nodes = {{10, -1, .5f, 1}, {11, 0, 1.f, 1}, {12, -1, .25f, 1}}}, 42);
}

TEST(TreeConversion, ReturnsTheTreeWithTheGivenProposerBits) {
  const v1::TokenTree message = GoodMessage();
  EXPECT_EQ(message.session_id(), 42);
  const absl::StatusOr<TokenTree> tree = FromProto(message, kLimits);
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(tree->position, 7);
  EXPECT_EQ(tree->nodes, (std::vector<TreeNode>{{10, -1, .5f, 4}, {11, 0, 1.f, 4}, {12, -1, .25f, 4}}));
}

TEST(TreeConversion, AnEmptyTreeIsATree) {
  v1::TokenTree message;
  message.set_position(3);
  const absl::StatusOr<TokenTree> tree = FromProto(message, kLimits);
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(tree->num_nodes(), 0);
  EXPECT_EQ(tree->position, 3);
}

TEST(TreeConversion, TellsHowManyFeaturesWerePredicted) {
  const TokenTree sent = {.position = 7, .num_predicted_features = 3};
  EXPECT_EQ(FromProto(ToProto(sent, 42), kLimits)->num_predicted_features, 3);
}

// 12 and then 10 were sampled below the root, and one token below 12.
TokenTree SampledTree() {
  const auto top = std::make_shared<DraftDistribution>(
      DraftDistribution{.token_ids = {10, 11, 12, 99}, .probs = {.5f, 0.f, .25f, .125f}});
  const auto below = std::make_shared<DraftDistribution>(DraftDistribution{.token_ids = {11, 12}, .probs = {.1f, .9f}});
  return {
      .position = 7,
      .nodes = {{12, -1, .25f}, {11, 0, .1f}, {10, -1, .5f}},
      .sampled = {{.parent = -1, .children = {0, 2}, .draft = top}, {.parent = 0, .children = {1}, .draft = below}}};
}

TEST(TreeConversion, SampledChildrenComeBackInTheirOrderWithTheirDistributions) {
  const TokenTree sent = SampledTree();
  const v1::TokenTree message = ToProto(sent, 42);
  EXPECT_EQ(message.draw_method(), v1::DRAW_METHOD_SAMPLED);
  const absl::StatusOr<TokenTree> tree = FromProto(message, kLimits);
  ASSERT_TRUE(tree.ok()) << tree.status();
  ASSERT_EQ(tree->sampled.size(), sent.sampled.size());
  for (size_t i = 0; i < sent.sampled.size(); ++i) {
    EXPECT_EQ(tree->sampled[i].parent, sent.sampled[i].parent);
    EXPECT_EQ(tree->sampled[i].children, sent.sampled[i].children);
    EXPECT_EQ(tree->sampled[i].draft->token_ids, sent.sampled[i].draft->token_ids);
    EXPECT_EQ(tree->sampled[i].draft->probs, sent.sampled[i].draft->probs);
  }
}

TEST(TreeConversion, NodesMayShareADistribution) {
  TokenTree sent = SampledTree();
  sent.sampled[1].draft = sent.sampled[0].draft;
  sent.nodes[1].token_id = 99;
  const v1::TokenTree message = ToProto(sent, 42);
  EXPECT_EQ(message.draft_probs_size(), 1);
  const absl::StatusOr<TokenTree> tree = FromProto(message, kLimits);
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(tree->sampled[1].draft, tree->sampled[0].draft);
}

TEST(TreeConversion, ASumAboveOneByRoundingOnlyIsTaken) {
  v1::TokenTree message = ToProto(SampledTree(), 42);
  message.mutable_draft_probs(1)->set_probabilities(1, .9000005f);
  EXPECT_TRUE(FromProto(message, kLimits).ok());
}

TEST(TreeConversion, EveryKnownDrawMethodIsTaken) {
  for (int method = 0; method < v1::DrawMethod_ARRAYSIZE; ++method) {
    if (method == v1::DRAW_METHOD_SAMPLED) continue;  // SAMPLED needs distributions too
    v1::TokenTree message = GoodMessage();
    message.set_draw_method(static_cast<v1::DrawMethod>(method));
    EXPECT_TRUE(FromProto(message, kLimits).ok());
  }
}

// A newer proposer sends such nodes.
TEST(TreeConversion, NodesOfAnUnknownDrawMethodAreGuesses) {
  v1::TokenTree message = ToProto(SampledTree(), 42);
  EXPECT_TRUE(CheckDrawMethod(message).ok());
  message.set_draw_method(static_cast<v1::DrawMethod>(77));
  message.mutable_draft_probs(0)->set_probabilities(0, -1);  // its meaning is unknown
  const absl::StatusOr<TokenTree> tree = FromProto(message, kLimits);
  ASSERT_TRUE(tree.ok()) << tree.status();
  ASSERT_EQ(tree->num_nodes(), SampledTree().num_nodes());
  for (int32_t i = 0; i < tree->num_nodes(); ++i) EXPECT_EQ(tree->nodes[i].token_id, SampledTree().nodes[i].token_id);
  EXPECT_TRUE(tree->sampled.empty());
  EXPECT_EQ(CheckDrawMethod(message).message(),
            "token tree draw_method: expected a known one for rejection sampling, got 77");
  message.set_token_ids(0, 100);
  EXPECT_FALSE(FromProto(message, kLimits).ok()) << "the nodes keep to the rules all the same";
}

TEST(TreeConversion, TheLargestTreeIsBelowItsBound) {
  TokenTree tree{.position = std::numeric_limits<uint64_t>::max()};
  for (int32_t i = 0; i < speculation::kMaxTreeNodes; ++i) {
    const int32_t num_entries = kMaxTreeDraftEntries / speculation::kMaxTreeNodes;
    auto draft = std::make_shared<DraftDistribution>();
    for (int32_t k = 0; k < num_entries; ++k) {
      draft->token_ids.push_back(std::numeric_limits<int32_t>::max() - num_entries + k);
      draft->probs.push_back(.01f);
    }
    tree.Append({.token_id = draft->token_ids.front(), .parent = i - 1, .chance = .5f});
    tree.sampled.push_back({.parent = i - 1, .children = {i}, .draft = std::move(draft)});
  }
  const size_t num_bytes = ToProto(tree, std::numeric_limits<uint64_t>::max()).ByteSizeLong();
  EXPECT_LE(num_bytes, kMaxTokenTreeBytes);
  EXPECT_GT(num_bytes, kMaxTokenTreeBytes * 9 / 10) << "void: the tree is not the largest";
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
        Lie{"DistributionsOfGuesses", [](auto& m) { m.add_draft_probs(); }, "expected none where children are not"},
        Lie{"IndicesOfGuesses", [](auto& m) { m.add_distribution_indices(-1); }, "1 distribution_indices"}),
    [](const auto& info) { return info.param.name; });

class LyingDraft : public ::testing::TestWithParam<Lie> {};

TEST_P(LyingDraft, IsRefusedByName) {
  v1::TokenTree message = ToProto(SampledTree(), 42);
  ASSERT_TRUE(FromProto(message, kLimits).ok());
  GetParam().tell(message);
  const absl::StatusOr<TokenTree> tree = FromProto(message, kLimits);
  EXPECT_EQ(tree.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(tree.status().message().find(GetParam().want), absl::string_view::npos) << tree.status();
}

// Sets one probability of the root's distribution: that of token 12, which was sampled.
Lie Prob(const std::string& name, float prob, const std::string& want) {
  return {name, [prob](auto& m) { m.mutable_draft_probs(0)->set_probabilities(2, prob); }, want};
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, LyingDraft,
    ::testing::Values(
        Prob("Negative", -.25f, "draft_probs 0: probability of token 12 expected in [0, 1], got -0.25"),
        Prob("NotANumber", std::numeric_limits<float>::quiet_NaN(),
             "probability of token 12 expected in [0, 1], got nan"),
        Prob("Infinite", std::numeric_limits<float>::infinity(), "probability of token 12 expected in [0, 1], got inf"),
        Prob("SumAboveOne", .375f + 0x1p-19f, "draft_probs 0: sum of probabilities expected in (0, 1], got 1"),
        Prob("ImpossibleChild", 0, "node 0: expected a token that could be sampled, got 12 of probability 0"),
        Lie{"NoMass",
            [](auto& m) {
              for (float& prob : *m.mutable_draft_probs(1)->mutable_probabilities()) prob = 0;
            },
            "draft_probs 1: sum of probabilities expected in (0, 1], got 0"},
        Lie{"NoEntries", [](auto& m) { m.mutable_draft_probs(1)->Clear(); }, "draft_probs 1: sum"},
        Lie{"IdTwice", [](auto& m) { m.mutable_draft_probs(0)->set_token_ids(1, 10); }, "got 10 at entry 1"},
        Lie{"IdsDescending", [](auto& m) { m.mutable_draft_probs(0)->set_token_ids(1, 9); }, "got 9 at entry 1"},
        Lie{"DraftIdBeyondTheVocabulary", [](auto& m) { m.mutable_draft_probs(0)->set_token_ids(3, 100); },
            "below 100, got 100 at entry 3"},
        Lie{"DraftIdBeyondInt32", [](auto& m) { m.mutable_draft_probs(0)->set_token_ids(3, 4'000'000'000u); },
            "got 4000000000"},
        Lie{"MoreIdsThanProbabilities", [](auto& m) { m.mutable_draft_probs(1)->add_token_ids(50); },
            "draft_probs 1: expected one probability per id, got 3 ids and 2 probabilities"},
        Lie{"TooManyEntries",
            [](auto& m) {
              m.mutable_draft_probs(1)->mutable_token_ids()->Resize(kMaxDraftEntries + 1, 0);
              m.mutable_draft_probs(1)->mutable_probabilities()->Resize(kMaxDraftEntries + 1, 0);
            },
            "expected at most 4096 entries, got 4097"},
        Lie{"TooManyEntriesInAll",
            [](auto& m) {
              for (int i = 0; i < 16; ++i) {
                m.add_draft_probs()->mutable_token_ids()->Resize(kMaxDraftEntries, 0);
                m.mutable_draft_probs(m.draft_probs_size() - 1)->mutable_probabilities()->Resize(kMaxDraftEntries, 0);
              }
            },
            "expected at most 65536 entries in all, got 65542"},
        Lie{"IndexMissing", [](auto& m) { m.mutable_distribution_indices()->RemoveLast(); },
            "distribution_indices: expected 4, one for the root and one per node, got 3"},
        Lie{"IndexBeyondTheDistributions", [](auto& m) { m.set_distribution_indices(0, 2); },
            "root: has children, distribution index expected in [0, 2), got 2"},
        Lie{"IndexBelowNone", [](auto& m) { m.set_distribution_indices(2, -2); },
            "node 1: has no children, distribution index expected -1, got -2"},
        Lie{"ChildrenWithoutADistribution", [](auto& m) { m.set_distribution_indices(1, -1); },
            "node 0: has children, distribution index expected in [0, 2), got -1"},
        Lie{"ADistributionWithoutChildren", [](auto& m) { m.set_distribution_indices(3, 0); },
            "node 2: has no children, distribution index expected -1, got 0"},
        Lie{"ADistributionThatNobodyUses", [](auto& m) { *m.add_draft_probs() = m.draft_probs(0); },
            "draft_probs 2: expected a node that uses it"},
        Lie{"AChildFromElsewhere", [](auto& m) { m.set_token_ids(1, 50); },
            "node 1: expected a token of its parent's distribution, got 50"},
        Lie{"MoreChildrenThanCouldBeSampled", [](auto& m) { m.set_token_ids(2, 12); }, "siblings"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace foretoken::rpc
