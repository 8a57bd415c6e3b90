// SPDX-License-Identifier: Apache-2.0
// The judgement of a drafter's guesses. If this test fails, a head that reads the wrong layers goes unnoticed.
#include "proposer_service/draft/drafter_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace foretoken::proposer {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(DrafterWatch, NamesOtherReadingsOfAHeadThatGuessesBadly) {
  DrafterWatch watch({2, 4, 5});
  EXPECT_EQ(watch.Observe(199, 0), std::nullopt);
  const std::optional<std::string> line = watch.Observe(200, 39);
  ASSERT_TRUE(line.has_value());
  EXPECT_THAT(*line, HasSubstr("took 39 of 200 tokens"));
  EXPECT_THAT(*line, HasSubstr("layers 2,4,5"));
  EXPECT_THAT(*line, HasSubstr("--feature_layers=3,5,6"));
  EXPECT_THAT(*line, HasSubstr("--feature_layers=1,3,4"));
  EXPECT_EQ(watch.Observe(1000, 40), std::nullopt) << "it says so once";
}

TEST(DrafterWatch, IsContentWithOneRightGuessInFive) {
  DrafterWatch watch({2, 4, 5});
  EXPECT_EQ(watch.Observe(250, 50), std::nullopt);
  EXPECT_EQ(watch.Observe(10'000, 50), std::nullopt) << "only the beginning is judged";
}

TEST(DrafterWatch, HasNoOtherReadingOfTheLastHiddenState) {
  EXPECT_THAT(DrafterWatch({}).Observe(200, 0).value(), Not(HasSubstr("feature_layers")));
}

}  // namespace
}  // namespace foretoken::proposer
