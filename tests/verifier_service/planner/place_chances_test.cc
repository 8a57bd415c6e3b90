// SPDX-License-Identifier: Apache-2.0
// The learned values of rows under rejection sampling. If this test fails, rejection-sampled requests get too many or
// too few rows and become slower.
#include "verifier_service/planner/place_chances.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace foretoken::verifier {
namespace {

TEST(PlaceChances, LearnHowOftenAPlaceIsEmitted) {
  PlaceChances chances(8);
  for (int i = 0; i < 400; ++i) {
    std::vector<int32_t> places = {0};
    if (i % 2 == 0) places.push_back(1);
    if (i % 4 == 0) places.push_back(2);
    chances.Observe(4, places);
  }
  EXPECT_NEAR(chances.chances()[0], 1, .01);
  EXPECT_NEAR(chances.chances()[1], .5, .05);
  EXPECT_NEAR(chances.chances()[2], .25, .05);
  EXPECT_NEAR(chances.chances()[3], 0, .01);
}

TEST(PlaceChances, NeverRiseWithThePlace) {
  PlaceChances chances(8);
  EXPECT_TRUE(std::is_sorted(chances.chances().rbegin(), chances.chances().rend()));
  for (int i = 0; i < 100; ++i) chances.Observe(8, std::vector<int32_t>{2, 5});
  EXPECT_TRUE(std::is_sorted(chances.chances().rbegin(), chances.chances().rend()));
  EXPECT_LT(chances.chances()[2], .1f) << "a chance is never above the chances before it";
}

TEST(PlaceChances, LearnOfTheFirstPlaceWithoutARow) {
  PlaceChances chances(4);
  for (int i = 0; i < 100; ++i) chances.Observe(0, {});
  EXPECT_LT(chances.chances()[0], .1f);
  for (int i = 0; i < 400; ++i) chances.Observe(0, std::vector<int32_t>{0});
  EXPECT_GT(chances.chances()[0], .9f);
}

TEST(PlaceChances, LearnNothingOfPlacesWhoseParentsMayHaveHadNoRow) {
  PlaceChances chances(8), untouched(8);
  for (int i = 0; i < 100; ++i) chances.Observe(2, std::vector<int32_t>{0, 1, 2, 5});
  for (int i = 0; i < 100; ++i) untouched.Observe(2, std::vector<int32_t>{0, 1, 2});
  for (int place = 0; place < 8; ++place) EXPECT_EQ(chances.chances()[place], untouched.chances()[place]);
  EXPECT_EQ(chances.chances()[5], PlaceChances(8).chances()[5]);
}

TEST(PlaceChances, RowsBeyondTheLastPlaceDoNotMatter) {
  PlaceChances chances(2);
  chances.Observe(2, std::vector<int32_t>{0, 1});
  EXPECT_EQ(chances.chances().size(), 2);
  PlaceChances none(0);
  none.Observe(0, {});
  EXPECT_TRUE(none.chances().empty());
}

}  // namespace
}  // namespace foretoken::verifier
