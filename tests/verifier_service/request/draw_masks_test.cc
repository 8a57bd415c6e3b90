// SPDX-License-Identifier: Apache-2.0
// The tokens that a request may draw. If this test fails, an output has banned tokens, ends before min_tokens, or has
// ids that are not tokens.
#include "verifier_service/request/draw_masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/make_backend.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kNumIds = 70;  // not a whole number of words
const std::vector<int32_t> kEndingIds = {3, 69, 1000};

// Makes a vocabulary with a token for every id below `num_ids` except the holes.
tokenizer::Vocabulary MakeVocabulary(int32_t num_ids, const std::vector<int32_t>& holes) {
  std::vector<std::optional<tokenizer::Token>> tokens(static_cast<size_t>(num_ids));
  for (int32_t id = 0; id < num_ids; ++id) tokens[id] = tokenizer::Token{.spelling = absl::StrCat("t", id)};
  for (const int32_t hole : holes) tokens[hole].reset();
  return tokenizer::Vocabulary(std::move(tokens));
}

class DrawMasksTest : public ::testing::Test {
 protected:
  DrawMasks Make(const std::vector<int32_t>& ending_ids = kEndingIds) const {
    return DrawMasks(MakeDrawMaskBits(request_, ending_ids, drawable_), drawable_, *backend_);
  }
  // Uses a vocabulary with these holes, and a model with this many rows.
  void Use(const std::vector<int32_t>& holes, int64_t num_rows = kNumIds) {
    drawable_ = DrawableIds(MakeVocabulary(kNumIds, holes), num_rows, *backend_);
  }
  static std::vector<int32_t> Allowed(const uint32_t* mask) {
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < kNumIds; ++id) {
      if ((mask[id / 32] >> id % 32 & 1) != 0) ids.push_back(id);
    }
    return ids;
  }

  std::unique_ptr<kernels::Backend> backend_ = kernels::MakeBackend({.num_threads = 1}).backend;
  DrawableIds drawable_{MakeVocabulary(kNumIds, {}), kNumIds, *backend_};
  GenerationRequest request_;
};

TEST_F(DrawMasksTest, ARequestWithoutListsHasNoMask) {
  EXPECT_EQ(Make().At(0), nullptr);
  request_.stop.min_tokens = 5;
  EXPECT_EQ(Make({}).At(0), nullptr) << "no token ends the sample";
}

TEST_F(DrawMasksTest, EndingIdsAreExcludedOnlyBeforeMinTokens) {
  request_.stop.min_tokens = 5;
  const DrawMasks masks = Make();
  for (const int32_t num_generated : {0, 4}) {
    const std::vector<int32_t> ids = Allowed(masks.At(num_generated));
    EXPECT_EQ(ids.size(), kNumIds - 2);
    EXPECT_THAT(ids, ::testing::Not(::testing::AnyOf(::testing::Contains(3), ::testing::Contains(69))));
  }
  EXPECT_EQ(masks.At(5), nullptr);
}

TEST_F(DrawMasksTest, BannedAndEndingIdsAreRemovedFromAllowedIds) {
  request_.allowed_token_ids = {0, 3, 31, 32, 63, 64, 69, 2000};
  request_.banned_token_ids = {5, 32, 3000};
  EXPECT_THAT(Allowed(Make().At(0)), ElementsAre(0, 3, 31, 63, 64, 69));
  request_.stop.min_tokens = 1;
  const DrawMasks masks = Make();
  EXPECT_THAT(Allowed(masks.At(0)), ElementsAre(0, 31, 63, 64));
  EXPECT_THAT(Allowed(masks.At(1)), ElementsAre(0, 3, 31, 63, 64, 69));
  EXPECT_EQ(masks.At(1), masks.At(1000));
}

TEST_F(DrawMasksTest, BannedIdsAloneLeaveAllOtherIds) {
  request_.banned_token_ids = {0, 64};
  const std::vector<int32_t> ids = Allowed(Make().At(0));
  EXPECT_EQ(ids.size(), kNumIds - 2);
  EXPECT_EQ(ids.front(), 1);
}

TEST_F(DrawMasksTest, HolesOfTheVocabularyAreLeftOutOfEveryMask) {
  Use({1, 33, 64});
  const DrawMasks without_lists = Make();
  EXPECT_EQ(Allowed(without_lists.At(0)).size(), kNumIds - 3);
  EXPECT_FALSE(drawable_.Contains(33));
  EXPECT_EQ(without_lists.At(0), Make().At(9)) << "one mask serves all requests";
  request_.banned_token_ids = {0};
  EXPECT_EQ(Allowed(Make().At(0)).size(), kNumIds - 4);
  request_.banned_token_ids.clear();
  request_.stop.min_tokens = 2;
  const DrawMasks masks = Make();
  EXPECT_EQ(Allowed(masks.At(0)).size(), kNumIds - 5);
  EXPECT_EQ(masks.At(2), drawable_.mask());
}

TEST_F(DrawMasksTest, IdsWithoutARowOfTheModelAreNotDrawable) {
  Use({}, 66);
  EXPECT_EQ(drawable_.num_tokens(), 66);
  EXPECT_EQ(drawable_.mask(), nullptr);
  EXPECT_FALSE(drawable_.Contains(66));
  EXPECT_FALSE(drawable_.Contains(-1));
  Use({}, 1000);
  EXPECT_EQ(drawable_.num_tokens(), kNumIds) << "padding is not drawable";
}

}  // namespace
}  // namespace foretoken::verifier
