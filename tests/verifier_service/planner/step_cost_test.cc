// SPDX-License-Identifier: Apache-2.0
// The learned cost of a step. If this test fails, the planner underestimates the cost of rows, and speculation makes
// serving slower.
#include "verifier_service/planner/step_cost.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace foretoken::verifier {
namespace {

TEST(StepCost, NeverFallsWithRowsAndForgetsOneOutlier) {
  StepCost cost(64);
  for (int i = 0; i < 20; ++i) {
    for (const int32_t rows : {1, 4, 16}) cost.Observe({.num_rows = rows}, static_cast<float>(rows));
  }
  cost.Observe({.num_rows = 4}, 1000);
  for (int32_t rows = 1; rows < 64; ++rows)
    EXPECT_LE(cost.Predict({.num_rows = rows}), cost.Predict({.num_rows = rows + 1}));
  EXPECT_LT(cost.Predict({.num_rows = 4}), 6);
  for (int i = 0; i < 40; ++i) cost.Observe({.num_rows = 4}, 4);
  EXPECT_NEAR(cost.Predict({.num_rows = 4}), 4, 0.3);
}

TEST(StepCost, TheFirstStepOfARowCountMayBeAnOutlier) {
  const auto true_ms = [](int32_t rows) { return 20 + 0.05f * static_cast<float>(rows); };
  StepCost cost(64);
  for (int32_t rows = 1; rows <= 64; rows *= 2) cost.Observe({.num_rows = rows}, true_ms(rows));
  cost.Observe({.num_rows = 24}, 5000);
  EXPECT_LT(cost.Predict({.num_rows = 24}), 3.1f * true_ms(24));
  EXPECT_LT(cost.Predict({.num_rows = 64}), 2.5f * true_ms(64));
  for (int i = 0; i < 100; ++i) cost.Observe({.num_rows = 24}, true_ms(24));
  EXPECT_NEAR(cost.Predict({.num_rows = 24}), true_ms(24), 1);
}

TEST(StepCost, ATimeOfZeroDoesNotHideLaterOnes) {
  StepCost cost(64);
  cost.Observe({.num_rows = 4}, 0);
  for (int i = 0; i < 40; ++i) cost.Observe({.num_rows = 4}, 4);
  EXPECT_NEAR(cost.Predict({.num_rows = 4}), 4, 0.3);
}

TEST(StepCost, AnInvalidTimeIsIgnored) {
  StepCost cost(64);
  cost.Observe({.num_rows = 4}, 4);
  const float before = cost.Predict({.num_rows = 8, .num_positions = 100});
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1.0f}) {
    cost.Observe({.num_rows = 4, .num_positions = 50}, bad);
    cost.Observe({.num_rows = 9, .num_positions = 50}, bad);
  }
  EXPECT_EQ(cost.Predict({.num_rows = 8, .num_positions = 100}), before);
}

TEST(StepCost, AssumesAGentleSlopeBeforeObservations) {
  StepCost cost(64);
  EXPECT_GT(cost.Predict({.num_rows = 8}), cost.Predict({.num_rows = 1}));
  EXPECT_LT(cost.Predict({.num_rows = 8}), 1.5f * cost.Predict({.num_rows = 1}));
  EXPECT_EQ(cost.NextBucket(1), 2);
  EXPECT_EQ(cost.NextBucket(64), 64);
}

TEST(StepCost, TellsTheCostOfRowsFromTheCostOfContext) {
  StepCost cost(64);
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    const auto rows = static_cast<int32_t>(1 + random() % 8);
    const auto positions = static_cast<int64_t>(random() % 10000);
    cost.Observe({.num_rows = rows, .num_positions = positions},
                 10 + 2 * static_cast<float>(rows) + 1e-3f * static_cast<float>(positions));
  }
  EXPECT_NEAR(cost.Predict({.num_rows = 4}), 18, 1);
  EXPECT_NEAR(cost.Predict({.num_rows = 4, .num_positions = 8000}), 26, 1);
}

}  // namespace
}  // namespace foretoken::verifier
