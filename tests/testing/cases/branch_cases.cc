// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/cases/branch_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/reference/sampling.h"
#include "tests/testing/cases/random_draw_inputs.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {
namespace {

using kernels::BranchOrder;
using kernels::ConstTensorView;
using kernels::DrawStatus;
using kernels::DType;
using kernels::RowChildren;
using kernels::RowToBranch;
using kernels::ScoredToken;
using kernels::Shape;
using reference::DrawInputs;

// Returns all tokens with a probability above 0, by (score descending, id ascending).
std::vector<std::pair<double, int32_t>> RankedScores(const DrawInputs& inputs) {
  std::vector<std::pair<double, int32_t>> ranked;
  const bool is_greedy = inputs.sampling.is_greedy();
  DrawInputs distribution = inputs;
  if (is_greedy) distribution.sampling = {};
  const std::vector<double> probabilities = reference::FilteredDistribution(distribution);
  for (size_t id = 0; id < probabilities.size(); ++id) {
    if (probabilities[id] == 0) continue;
    const auto token = static_cast<int32_t>(id);
    const double noise = is_greedy ? 0 : reference::TokenNoise(inputs.sampling, inputs.t, token);
    ranked.emplace_back(-std::log(probabilities[id]) - noise, token);
  }
  std::sort(ranked.begin(), ranked.end());
  for (auto& [score, token] : ranked) score = -score;
  return ranked;
}

bool MaskLeavesAToken(const DrawInputs& inputs) {
  for (size_t id = 0; id < inputs.logits.size() && !inputs.mask.empty(); ++id) {
    if ((inputs.mask[id / 32] >> id % 32 & 1) != 0 && std::isfinite(inputs.logits[id])) return true;
  }
  return inputs.mask.empty();
}

// The mask stays, unless it leaves no token.
DrawInputs InputsWithoutAdjustments(RandomValues& random) {
  DrawInputs inputs = RandomDrawInputs(random);
  inputs.bias.clear();
  inputs.counts.clear();
  inputs.path_token_ids.clear();
  if (!MaskLeavesAToken(inputs)) inputs.mask.clear();
  inputs.sampling.repetition_penalty = 1;
  inputs.sampling.presence_penalty = inputs.sampling.frequency_penalty = 0;
  return inputs;
}

RowChildren Branch(const BranchRowsOp& op, const DrawInputs& inputs, int32_t num_children,
                   BranchOrder order = BranchOrder::kKeyedDraw) {
  const RowToBranch row{.sampling = inputs.sampling,
                        .t = inputs.t,
                        .num_children = num_children,
                        .order = order,
                        .mask = inputs.mask.empty() ? nullptr : inputs.mask.data()};
  const auto num_tokens = static_cast<int32_t>(inputs.logits.size());
  RowChildren children;
  op({.logits = {inputs.logits.data(), DType::kF32, Shape(1, num_tokens)},
      .num_tokens = num_tokens,
      .rows = {&row, 1},
      .children = {&children, 1}});
  return children;
}

}  // namespace

void ExpectTheReferencesBranches(const BranchRowsOp& op, int num_rounds) {
  RandomValues random(31);
  for (int i = 0; i < num_rounds; ++i) {
    const DrawInputs inputs = InputsWithoutAdjustments(random);
    const int32_t count = 1 + random.Below(12);
    const auto expected = RankedScores(inputs);
    const RowChildren got = Branch(op, inputs, count);
    ASSERT_EQ(got.status, DrawStatus::kOk);
    ASSERT_EQ(got.children.size(), std::min<size_t>(count, expected.size())) << i;
    for (size_t child = 0; child < got.children.size(); ++child) {
      ASSERT_EQ(got.children[child].token_id, expected[child].second) << i << " child " << child;
      // Scores reach 100 at low temperatures, where f32 has a resolution of 2^-18.
      ASSERT_NEAR(got.children[child].score, expected[child].first, 1e-4 * (1 + std::abs(expected[child].first)));
    }
  }
}

void ExpectTheLargestDraftProbs(const BranchRowsOp& op, int num_rounds) {
  RandomValues random(35);
  for (int i = 0; i < num_rounds; ++i) {
    DrawInputs inputs = InputsWithoutAdjustments(random);
    if (inputs.sampling.is_greedy()) continue;
    const std::vector<double> distribution = reference::FilteredDistribution(inputs);
    const int32_t count = 1 + random.Below(40);
    const RowChildren got = Branch(op, inputs, count, BranchOrder::kDraftProb);
    const auto num_kept = std::count_if(distribution.begin(), distribution.end(), [](double prob) { return prob > 0; });
    ASSERT_EQ(got.children.size(), std::min<size_t>(count, num_kept)) << i;
    double least = 1;
    for (const ScoredToken& token : got.children) {
      const double logprob = std::log(distribution[token.token_id]);
      ASSERT_NEAR(token.score, logprob, 1e-4 * (1 + std::abs(logprob)));
      least = std::min(least, distribution[token.token_id]);
    }
    std::vector<double> sorted = distribution;
    std::sort(sorted.rbegin(), sorted.rend());
    ASSERT_EQ(least, sorted[got.children.size() - 1]);
  }
}

void ExpectALargeVocabularyToBeBranchedWhole(const BranchRowsOp& op, uint32_t num_draws) {
  RandomValues random(33);
  DrawInputs inputs;
  inputs.logits = random.Normals(128256, 2);
  inputs.sampling = {.temperature = 1.3f, .seed = 77};
  for (inputs.t = 0; inputs.t < num_draws; ++inputs.t) {
    const auto expected = RankedScores(inputs);
    const RowChildren got = Branch(op, inputs, 40);
    ASSERT_EQ(got.children.size(), 40);
    for (size_t i = 0; i < 40; ++i) ASSERT_EQ(got.children[i].token_id, expected[i].second);
  }
}

void ExpectNoBranchesOfABrokenOrEmptyRow(const BranchRowsOp& op) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const BranchOrder order : {BranchOrder::kKeyedDraw, BranchOrder::kDraftProb}) {
    EXPECT_EQ(Branch(op, {.logits = {0, kInfinity}}, 2, order).status, DrawStatus::kNonFiniteLogits);
    EXPECT_EQ(Branch(op, {.logits = {0, NAN}}, 2, order).status, DrawStatus::kNonFiniteLogits);
    const RowChildren none = Branch(op, {.logits = {-kInfinity, -kInfinity}}, 2, order);
    EXPECT_EQ(none.status, DrawStatus::kEmptySupport);
    EXPECT_TRUE(none.children.empty());
    EXPECT_EQ(Branch(op, {.logits = {1, 2}, .mask = {0}}, 2, order).status, DrawStatus::kEmptySupport);
    EXPECT_EQ(Branch(op, {.logits = {-kInfinity, 3}, .sampling = {.temperature = 0}}, 2, order).children.size(), 1);
  }
}

void ExpectRowsToBranchAlone(const BranchRowsOp& op) {
  constexpr int32_t kNumTokens = 300, kWidth = 320, kNumRows = 7;
  RandomValues random(34);
  std::vector<float> logits = random.Normals(kNumRows * kWidth, 3);
  for (int32_t row = 0; row < kNumRows; ++row) {
    std::fill_n(logits.begin() + row * kWidth + kNumTokens, kWidth - kNumTokens, 1e30f);
  }
  std::vector<RowToBranch> rows;
  for (int32_t i = 0; i < 70; ++i) {
    rows.push_back({.logit_row = random.Below(kNumRows),
                    .sampling = {.temperature = i % 3 == 0 ? 0.0f : 0.9f, .seed = static_cast<uint64_t>(i)},
                    .t = static_cast<uint32_t>(random.Below(1000)),
                    .num_children = 1 + random.Below(9),
                    .order = i % 5 == 0 ? BranchOrder::kDraftProb : BranchOrder::kKeyedDraw});
    if (i % 4 == 1) rows.back().sampling.top_k = 20;
    if (i % 4 == 2) rows.back().sampling.top_p = 0.8f;
  }
  std::vector<RowChildren> children(rows.size());
  op({.logits = ConstTensorView{logits.data(), DType::kF32, Shape(kNumRows, kWidth)},
      .num_tokens = kNumTokens,
      .rows = rows,
      .children = children});
  for (size_t i = 0; i < rows.size(); ++i) {
    const float* row = logits.data() + rows[i].logit_row * kWidth;
    const DrawInputs inputs{.logits = {row, row + kNumTokens}, .sampling = rows[i].sampling, .t = rows[i].t};
    const RowChildren alone = Branch(op, inputs, rows[i].num_children, rows[i].order);
    ASSERT_EQ(children[i].children.size(), alone.children.size());
    for (size_t child = 0; child < alone.children.size(); ++child) {
      EXPECT_EQ(children[i].children[child].token_id, alone.children[child].token_id);
      EXPECT_EQ(children[i].children[child].score, alone.children[child].score);
      EXPECT_LT(children[i].children[child].token_id, kNumTokens);
    }
  }
}

}  // namespace foretoken::testing
