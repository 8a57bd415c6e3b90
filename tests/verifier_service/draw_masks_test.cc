// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/draw_masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/make_backend.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kNumTokens = 70;  // not a whole number of words
const std::vector<int32_t> kEndingIds = {3, 69, 1000};

class DrawMasksTest : public ::testing::Test {
 protected:
  DrawMasks Make(const std::vector<int32_t>& ending_ids = kEndingIds) const {
    return DrawMasks(request_, ending_ids, kNumTokens, *backend_);
  }
  static std::vector<int32_t> Allowed(const uint32_t* mask) {
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < kNumTokens; ++id) {
      if ((mask[id / 32] >> id % 32 & 1) != 0) ids.push_back(id);
    }
    return ids;
  }

  std::unique_ptr<kernels::Backend> backend_ = kernels::MakeBackend({.num_threads = 1}).backend;
  GenerationRequest request_;
};

TEST_F(DrawMasksTest, ARequestThatMayDrawAllHasNone) {
  EXPECT_EQ(Make().At(0), nullptr);
  request_.stop.min_tokens = 5;
  EXPECT_EQ(Make({}).At(0), nullptr) << "nothing ends it";
}

TEST_F(DrawMasksTest, WhatEndsASampleIsLeftOutBeforeMinTokensAlone) {
  request_.stop.min_tokens = 5;
  const DrawMasks masks = Make();
  for (const int32_t num_generated : {0, 4}) {
    const std::vector<int32_t> ids = Allowed(masks.At(num_generated));
    EXPECT_EQ(ids.size(), kNumTokens - 2);
    EXPECT_THAT(ids, ::testing::Not(::testing::AnyOf(::testing::Contains(3), ::testing::Contains(69))));
  }
  EXPECT_EQ(masks.At(5), nullptr);
}

TEST_F(DrawMasksTest, AllowedLessBannedAndThenLessWhatEnds) {
  request_.allowed_token_ids = {0, 3, 31, 32, 63, 64, 69, 2000};
  request_.banned_token_ids = {5, 32, 3000};
  EXPECT_THAT(Allowed(Make().At(0)), ElementsAre(0, 3, 31, 63, 64, 69));
  request_.stop.min_tokens = 1;
  const DrawMasks masks = Make();
  EXPECT_THAT(Allowed(masks.At(0)), ElementsAre(0, 31, 63, 64));
  EXPECT_THAT(Allowed(masks.At(1)), ElementsAre(0, 3, 31, 63, 64, 69));
  EXPECT_EQ(masks.At(1), masks.At(1000));
}

TEST_F(DrawMasksTest, BansAloneLeaveTheRest) {
  request_.banned_token_ids = {0, 64};
  const std::vector<int32_t> ids = Allowed(Make().At(0));
  EXPECT_EQ(ids.size(), kNumTokens - 2);
  EXPECT_EQ(ids.front(), 1);
}

}  // namespace
}  // namespace foretoken::verifier
