// SPDX-License-Identifier: Apache-2.0
// The choice of tree nodes, with the cost and the chances that it uses. If this test fails, speculation makes serving
// slower: the verifier computes nodes that do not pay, or leaves out nodes that do.
#include "verifier_service/planner/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>

#include "verifier_service/planner/calibration.h"

namespace foretoken::verifier {
namespace {

using speculation::PathChances;
using speculation::TokenTree;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TokenTree Chain(const std::vector<float>& chances) {
  TokenTree tree;
  for (size_t i = 0; i < chances.size(); ++i) {
    const auto node_idx = static_cast<int32_t>(i);
    tree.Append({.token_id = node_idx, .parent = node_idx - 1, .chance = chances[i], .proposers = 1});
  }
  return tree;
}

// Returns costs learned from steps of 1, 2, 3, ... rows that take `cost_ms(rows)`.
StepCost Learned(const std::function<float(int32_t)>& cost_ms, int32_t max_rows = 64) {
  StepCost cost(max_rows);
  for (int32_t rows = 1; rows <= max_rows; ++rows) cost.Observe({.num_rows = rows}, cost_ms(rows));
  return cost;
}

TEST(Planner, TakesEveryLikelyNodeIfRowsAreFree) {
  const StepCost cost = Learned([](int32_t) { return 10.0f; });
  const TokenTree tree = Chain({0.9f, 0.8f, 0.1f});
  const TreeOffer offer = {.path_chances = PathChances(tree), .max_nodes = 8};
  EXPECT_THAT(ChooseNodes({&offer, 1}, {.fixed = {.num_rows = 1}, .max_rows = 64, .num_decoding = 1}, cost),
              ElementsAre(ElementsAre(0, 1, 2)));
}

TEST(Planner, TakesNothingIfARowCostsMoreThanItsChance) {
  const StepCost cost = Learned([](int32_t rows) { return static_cast<float>(rows); });
  const TokenTree tree = Chain({0.9f, 0.8f});
  const TreeOffer offer = {.path_chances = PathChances(tree), .max_nodes = 8};
  EXPECT_THAT(ChooseNodes({&offer, 1}, {.fixed = {.num_rows = 1}, .max_rows = 64, .num_decoding = 1}, cost),
              ElementsAre(IsEmpty()));
}

TEST(Planner, JumpsOverACostStepIfTheNodesBehindItPay) {
  // The second row doubles the cost, and further rows up to 16 are free. One node never pays; fifteen good nodes do.
  const StepCost cost = Learned([](int32_t rows) { return rows == 1 ? 10.0f : 20.0f; });
  const TokenTree tree = Chain(std::vector<float>(15, 0.95f));
  const TreeOffer offer = {.path_chances = PathChances(tree), .max_nodes = 15};
  const StepBudget budget = {.fixed = {.num_rows = 1}, .max_rows = 64, .num_decoding = 1};
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
  EXPECT_THAT(ChooseNodes(offers, {.fixed = {.num_rows = 2}, .max_rows = 5, .num_decoding = 2}, cost),
              ElementsAre(ElementsAre(0), ElementsAre(0, 1)));
}

TEST(Planner, ASequenceThatTakesAllGetsItsNodesFirstAtAnyCost) {
  const StepCost cost = Learned([](int32_t rows) { return static_cast<float>(rows * rows); });
  const TokenTree good = Chain({0.9f, 0.9f, 0.9f});
  const TokenTree poor = Chain({0.2f, 0.2f, 0.2f});
  const TreeOffer offers[] = {
      {.path_chances = PathChances(good), .max_nodes = 8},
      {.path_chances = PathChances(poor), .max_nodes = 2, .takes_all = true},
  };
  EXPECT_THAT(ChooseNodes(offers, {.fixed = {.num_rows = 2}, .max_rows = 64, .num_decoding = 2}, cost),
              ElementsAre(IsEmpty(), ElementsAre(0, 1)));
  EXPECT_THAT(ChooseNodes(offers, {.fixed = {.num_rows = 2}, .max_rows = 3, .num_decoding = 2}, cost),
              ElementsAre(IsEmpty(), ElementsAre(0)));
}

TEST(Planner, TimeBetweenStepsMakesRowsWorthMore) {
  const StepCost cost = Learned([](int32_t rows) { return static_cast<float>(rows); });
  const TokenTree tree = Chain({0.5f});
  const TreeOffer offer = {.path_chances = PathChances(tree), .max_nodes = 8};
  StepBudget budget = {.fixed = {.num_rows = 1}, .max_rows = 64, .num_decoding = 1};
  EXPECT_THAT(ChooseNodes({&offer, 1}, budget, cost), ElementsAre(IsEmpty()));
  budget.between_ms = 5;  // 1 token in 6 ms, or 1.5 in 7
  EXPECT_THAT(ChooseNodes({&offer, 1}, budget, cost), ElementsAre(ElementsAre(0)));
}

// 1.35 tokens in 14 ms are worse than 1 in 10 ms, beside a prompt of 160 ms, too. Where a row costs nothing beside the
// prompt, it is worth its chance.
TEST(Planner, PromptsDoNotMakeNodesCheap) {
  const StepCost cost = Learned([](int32_t rows) { return 6 + 4 * static_cast<float>(rows); });
  const TokenTree tree = Chain({0.35f});
  const TreeOffer offer = {.path_chances = PathChances(tree), .max_nodes = 8};
  StepBudget budget = {.fixed = {.num_rows = 1}, .max_rows = 64, .num_decoding = 1};
  EXPECT_THAT(ChooseNodes({&offer, 1}, budget, cost), ElementsAre(IsEmpty()));
  budget.fixed.num_rows = 41;
  budget.prompt_ms = 160;
  EXPECT_THAT(ChooseNodes({&offer, 1}, budget, cost), ElementsAre(IsEmpty()));
  const StepCost flat = Learned([](int32_t rows) { return rows <= 40 ? 6 + 4 * static_cast<float>(rows) : 166.0f; });
  budget.prompt_ms = 156;
  EXPECT_THAT(ChooseNodes({&offer, 1}, budget, flat), ElementsAre(ElementsAre(0)));
}

TEST(Planner, NodesOfLargeContextsCostMore) {
  StepCost cost(64);
  for (int i = 0; i < 300; ++i) {
    for (const int32_t rows : {1, 2, 4, 8}) {
      const int32_t context = 100 + 4000 * (i % 7);
      cost.Observe({.num_rows = rows, .num_positions = int64_t{rows} * context}, 10.0f + 0.002f * rows * context);
    }
  }
  EXPECT_NEAR(cost.Predict({.num_rows = 4, .num_positions = 40'000}), 90, 10);
  EXPECT_NEAR(cost.Predict({.num_rows = 4, .num_positions = 400}), 10, 3);
  const TokenTree tree = Chain({0.5f});
  TreeOffer offer = {.path_chances = PathChances(tree), .max_nodes = 8, .num_positions = 200};
  StepBudget budget = {.fixed = {.num_rows = 1, .num_positions = 200}, .max_rows = 64, .num_decoding = 1};
  EXPECT_THAT(ChooseNodes({&offer, 1}, budget, cost), ElementsAre(ElementsAre(0)));
  offer.num_positions = budget.fixed.num_positions = 20'000;  // a second row doubles the step
  EXPECT_THAT(ChooseNodes({&offer, 1}, budget, cost), ElementsAre(IsEmpty()));
}

// A slow ChooseNodes that sorts all nodes.
std::vector<std::vector<int32_t>> ChooseBySorting(std::span<const TreeOffer> offers, const StepBudget& budget,
                                                  const StepCost& cost) {
  struct Node {
    float chance;
    int32_t offer_idx, node_idx;
  };
  std::vector<Node> nodes, best;
  for (int32_t i = 0; i < static_cast<int32_t>(offers.size()); ++i) {
    for (int32_t node = 0; node < static_cast<int32_t>(offers[i].path_chances.size()); ++node) {
      nodes.push_back({offers[i].path_chances[node], i, node});
    }
  }
  std::stable_sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) { return a.chance > b.chance; });
  std::vector<int32_t> num_taken(offers.size());
  for (const Node& node : nodes) {
    if (++num_taken[node.offer_idx] <= offers[node.offer_idx].max_nodes) best.push_back(node);
  }
  best.resize(std::min<size_t>(best.size(), budget.max_rows - budget.fixed.num_rows));
  size_t num_best = 0;
  double expected = budget.num_decoding, best_rate = expected / cost.Predict(budget.fixed);
  for (size_t i = 0; i < best.size(); ++i) {
    expected += best[i].chance;
    const double rate = expected / cost.Predict({.num_rows = budget.fixed.num_rows + static_cast<int32_t>(i) + 1});
    if (rate > best_rate) std::tie(best_rate, num_best) = std::pair(rate, i + 1);
  }
  std::vector<std::vector<int32_t>> chosen(offers.size());
  for (size_t i = 0; i < num_best; ++i) chosen[best[i].offer_idx].push_back(best[i].node_idx);
  for (std::vector<int32_t>& of_offer : chosen) std::sort(of_offer.begin(), of_offer.end());
  return chosen;
}

TEST(Planner, ChoosesTheNodesThatSortingAllNodesGives) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(0.05f, 1);
  for (int trial = 0; trial < 200; ++trial) {
    const auto slope = std::exponential_distribution<float>(5)(random);
    const StepCost cost = Learned([&](int32_t rows) { return 10 + slope * static_cast<float>(rows); }, 128);
    std::vector<TreeOffer> offers(1 + random() % 12);
    for (TreeOffer& offer : offers) {
      std::vector<float> chances(random() % 40);
      // Some chances are equal, and some are near 0.
      for (float& chance : chances) chance = random() % 3 == 0 ? 0.5f : std::pow(uniform(random), 4.0f);
      offer = {.path_chances = PathChances(Chain(chances)), .max_nodes = static_cast<int32_t>(random() % 40)};
    }
    const auto num_offers = static_cast<int32_t>(offers.size());
    const StepBudget budget = {.fixed = {.num_rows = num_offers}, .max_rows = 100, .num_decoding = num_offers};
    EXPECT_EQ(ChooseNodes(offers, budget, cost), ChooseBySorting(offers, budget, cost)) << trial;
  }
}

TEST(Calibration, LearnsHowOftenNodesOfAStatedChanceAreEmitted) {
  Calibration calibration(1);
  const TokenTree tree = Chain({0.9f, 0.9f});
  EXPECT_FLOAT_EQ(calibration.PathChances(tree)[0], 0.9f);
  for (int i = 0; i < 200; ++i) calibration.Observe(tree, std::vector<int32_t>{i % 4 == 0 ? 0 : 7, 9});
  EXPECT_NEAR(calibration.PathChances(tree)[0], 0.25f, 0.05f);
  EXPECT_LT(calibration.PathChances(tree)[1] / calibration.PathChances(tree)[0], 0.2f)
      << "right once in four trees, and then always wrong";
}

TEST(Calibration, ScoresOnlyChildrenOfEmittedNodes) {
  Calibration calibration(1);
  const TokenTree tree = Chain({0.9f, 0.9f, 0.9f});
  for (int i = 0; i < 100; ++i) calibration.Observe(tree, std::vector<int32_t>{5, 1, 2});
  EXPECT_LT(calibration.PathChances(tree)[0], 0.1f);
  EXPECT_FLOAT_EQ(calibration.PathChances(tree)[1] / calibration.PathChances(tree)[0], 0.9f)
      << "nodes below a wrong node were not tried";
}

}  // namespace
}  // namespace foretoken::verifier
