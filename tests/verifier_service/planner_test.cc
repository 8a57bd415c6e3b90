// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verifier_service/calibration.h"

namespace foretoken::verifier {
namespace {

using speculation::PathChances;
using speculation::TokenTree;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TokenTree Chain(std::vector<float> chances) {
  TokenTree tree;
  for (size_t i = 0; i < chances.size(); ++i) {
    tree.token_ids.push_back(static_cast<int32_t>(i));
    tree.parents.push_back(static_cast<int32_t>(i) - 1);
    tree.proposers.push_back(1);
  }
  tree.chances = std::move(chances);
  return tree;
}

// Steps of one, two, three ... rows cost what `cost_ms` says of them.
StepCost Learned(const std::function<float(int32_t)>& cost_ms, int32_t max_rows = 64) {
  StepCost cost(max_rows);
  for (int32_t rows = 1; rows <= max_rows; ++rows) cost.Observe(rows, cost_ms(rows));
  return cost;
}

TEST(Planner, TakesEveryLikelyNodeWhereRowsAreFree) {
  const StepCost cost = Learned([](int32_t) { return 10.0f; });
  const TokenTree tree = Chain({0.9f, 0.8f, 0.1f});
  const TreeOffer offer = {.path_chances = PathChances(tree), .max_nodes = 8};
  EXPECT_THAT(ChooseNodes({&offer, 1}, {.num_fixed_rows = 1, .max_rows = 64, .num_emitting = 1}, cost),
              ElementsAre(ElementsAre(0, 1, 2)));
}

TEST(Planner, TakesNothingWhereARowCostsMoreThanItsChance) {
  const StepCost cost = Learned([](int32_t rows) { return static_cast<float>(rows); });
  const TokenTree tree = Chain({0.9f, 0.8f});
  const TreeOffer offer = {.path_chances = PathChances(tree), .max_nodes = 8};
  EXPECT_THAT(ChooseNodes({&offer, 1}, {.num_fixed_rows = 1, .max_rows = 64, .num_emitting = 1}, cost),
              ElementsAre(IsEmpty()));
}

TEST(Planner, JumpsOverACostStepWhenWhatLiesBehindItPays) {
  // A second row doubles the cost; from there to 16 rows are free: one node never pays, fifteen good ones do.
  const StepCost cost = Learned([](int32_t rows) { return rows == 1 ? 10.0f : 20.0f; });
  const TokenTree tree = Chain(std::vector<float>(15, 0.95f));
  const TreeOffer offer = {.path_chances = PathChances(tree), .max_nodes = 15};
  const RowBudget budget = {.num_fixed_rows = 1, .max_rows = 64, .num_emitting = 1};
  EXPECT_EQ(ChooseNodes({&offer, 1}, budget, cost)[0].size(), 15);
  const TokenTree short_tree = Chain({0.95f});
  const TreeOffer short_offer = {.path_chances = PathChances(short_tree), .max_nodes = 15};
  EXPECT_THAT(ChooseNodes({&short_offer, 1}, budget, cost), ElementsAre(IsEmpty()));
}

TEST(Planner, SequencesCompeteAndLimitsHold) {
  const StepCost cost = Learned([](int32_t) { return 10.0f; });
  const TokenTree good = Chain({0.9f, 0.9f, 0.9f});
  const TokenTree poor = Chain({0.2f, 0.2f, 0.2f});
  const TreeOffer offers[] = {{.path_chances = PathChances(poor), .max_nodes = 8},
                              {.path_chances = PathChances(good), .max_nodes = 2}};
  EXPECT_THAT(ChooseNodes(offers, {.num_fixed_rows = 2, .max_rows = 5, .num_emitting = 2}, cost),
              ElementsAre(ElementsAre(0), ElementsAre(0, 1)));
}

TEST(Planner, PromptRowsKeepWithinTheGrowthOthersMaySee) {
  const StepCost cost = Learned([](int32_t rows) { return 10.0f + static_cast<float>(rows); });
  const int32_t num_rows = PromptRows(4, 64, 1.5f, cost);  // 14 ms may become 21: 11 rows in all
  EXPECT_GE(num_rows, 6);
  EXPECT_LE(num_rows, 7);
  EXPECT_EQ(PromptRows(0, 64, 1.5f, cost), 64);
  EXPECT_EQ(PromptRows(64, 64, 1.5f, cost), 0);
  EXPECT_EQ(PromptRows(4, 64, 1.0f, cost), 1) << "every prompt ends";
}

TEST(StepCost, NeverFallsWithRowsAndForgetsOneOutlier) {
  StepCost cost(64);
  for (int i = 0; i < 20; ++i) {
    for (const int32_t rows : {1, 4, 16}) cost.Observe(rows, static_cast<float>(rows));
  }
  cost.Observe(4, 1000);
  for (int32_t rows = 1; rows < 64; ++rows) EXPECT_LE(cost.Predict(rows), cost.Predict(rows + 1));
  EXPECT_LT(cost.Predict(4), 6);
  for (int i = 0; i < 40; ++i) cost.Observe(4, 4);
  EXPECT_NEAR(cost.Predict(4), 4, 0.3);
}

TEST(StepCost, GuessesAGentleSlopeBeforeItKnows) {
  StepCost cost(64);
  EXPECT_GT(cost.Predict(8), cost.Predict(1));
  EXPECT_LT(cost.Predict(8), 1.5f * cost.Predict(1));
  EXPECT_EQ(cost.NextBucket(1), 2);
  EXPECT_EQ(cost.NextBucket(64), 64);
}

TEST(Calibration, LearnsWhatStatedChancesAreWorth) {
  Calibration calibration(1);
  const TokenTree tree = Chain({0.9f, 0.9f});
  EXPECT_FLOAT_EQ(calibration.PathChances(tree)[0], 0.9f);
  for (int i = 0; i < 200; ++i) calibration.Observe(tree, std::vector<int32_t>{i % 4 == 0 ? 0 : 7, 9});
  EXPECT_NEAR(calibration.PathChances(tree)[0], 0.25f, 0.05f);
  EXPECT_LT(calibration.PathChances(tree)[1] / calibration.PathChances(tree)[0], 0.2f)
      << "right once in four, and then always wrong";
}

TEST(Calibration, ScoresOnlyChildrenOfWhatWasEmitted) {
  Calibration calibration(1);
  const TokenTree tree = Chain({0.9f, 0.9f, 0.9f});
  for (int i = 0; i < 100; ++i) calibration.Observe(tree, std::vector<int32_t>{5, 1, 2});
  EXPECT_LT(calibration.PathChances(tree)[0], 0.1f);
  EXPECT_FLOAT_EQ(calibration.PathChances(tree)[1] / calibration.PathChances(tree)[0], 0.9f)
      << "below a wrong node nothing was tried";
}

}  // namespace
}  // namespace foretoken::verifier
