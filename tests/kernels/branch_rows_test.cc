// SPDX-License-Identifier: Apache-2.0
// The children of draft rows against tests/reference, on every instruction set, and as an op over many rows.
#include "kernels/cpu/branch_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/draw_row.h"
#include "kernels/make_backend.h"
#include "tests/reference/sampling.h"
#include "tests/testing/for_each_isa.h"
#include "tests/testing/random_draw_inputs.h"

namespace foretoken::kernels::cpu {
namespace {

using reference::DrawInputs;
using testing::ForEachIsa;
using testing::RandomValues;

// All tokens with a chance, by (score descending, id ascending).
std::vector<std::pair<double, int32_t>> RankedScores(const DrawInputs& inputs) {
  std::vector<std::pair<double, int32_t>> ranked;
  const bool is_greedy = inputs.sampling.is_greedy();
  DrawInputs law = inputs;
  if (is_greedy) law.sampling = {};
  const std::vector<double> probabilities = reference::FilteredDistribution(law);
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

DrawInputs InputsWithoutAdjustments(RandomValues& random) {
  DrawInputs inputs = testing::RandomDrawInputs(random);
  inputs.bias.clear();
  inputs.counts.clear();
  inputs.path_token_ids.clear();
  inputs.mask.clear();
  inputs.sampling.repetition_penalty = 1;
  inputs.sampling.presence_penalty = inputs.sampling.frequency_penalty = 0;
  return inputs;
}

TEST(DrawTopTokens, EqualsTheReferenceUnderAllFilters) {
  ForEachIsa([] {
    RandomValues random(31);
    for (int i = 0; i < 1500; ++i) {
      const DrawInputs inputs = InputsWithoutAdjustments(random);
      const int32_t count = 1 + random.Below(12);
      const auto expected = RankedScores(inputs);
      const RowChildren got = DrawTopTokens(inputs.logits, inputs.sampling, inputs.t, count);
      ASSERT_EQ(got.status, DrawStatus::kOk);
      ASSERT_EQ(got.children.size(), std::min<size_t>(count, expected.size())) << i;
      for (size_t child = 0; child < got.children.size(); ++child) {
        ASSERT_EQ(got.children[child].token_id, expected[child].second) << i << " child " << child;
        // Scores reach 100 at low temperatures: f32 keeps 2^-18 of them.
        ASSERT_NEAR(got.children[child].score, expected[child].first, 1e-4 * (1 + std::abs(expected[child].first)));
      }
    }
  });
}

TEST(DrawTopTokens, TheFirstIsWhatTheTargetWouldDraw) {
  RandomValues random(32);
  for (int i = 0; i < 1000; ++i) {
    const DrawInputs inputs = InputsWithoutAdjustments(random);
    const RowDraw draw =
        DrawRow({.logits = inputs.logits, .sampling = inputs.sampling, .bias = {}, .counts = {}}, inputs.t);
    ASSERT_EQ(DrawTopTokens(inputs.logits, inputs.sampling, inputs.t, 4).children[0].token_id, draw.token_id);
  }
}

TEST(TopDraftProbs, AreTheLargestOfTheFilteredLaw) {
  ForEachIsa([] {
    RandomValues random(35);
    for (int i = 0; i < 500; ++i) {
      DrawInputs inputs = InputsWithoutAdjustments(random);
      if (inputs.sampling.is_greedy()) continue;
      const std::vector<double> law = reference::FilteredDistribution(inputs);
      const int32_t count = 1 + random.Below(40);
      const RowChildren got = TopDraftProbs(inputs.logits, inputs.sampling, count);
      const auto num_kept = std::count_if(law.begin(), law.end(), [](double prob) { return prob > 0; });
      ASSERT_EQ(got.children.size(), std::min<size_t>(count, num_kept)) << i;
      double least = 1;
      for (const ScoredToken& token : got.children) {
        const double logprob = std::log(law[token.token_id]);
        ASSERT_NEAR(token.score, logprob, 1e-4 * (1 + std::abs(logprob)));
        least = std::min(least, law[token.token_id]);
      }
      std::vector<double> sorted = law;
      std::sort(sorted.rbegin(), sorted.rend());
      ASSERT_EQ(least, sorted[got.children.size() - 1]);
    }
  });
}

TEST(DrawTopTokens, ALargeVocabularyIsSearchedWhole) {
  ForEachIsa([] {
    RandomValues random(33);
    DrawInputs inputs;
    inputs.logits = random.Normals(128256, 2);
    inputs.sampling = {.temperature = 1.3f, .seed = 77};
    for (inputs.t = 0; inputs.t < 3; ++inputs.t) {
      const auto expected = RankedScores(inputs);
      const RowChildren got = DrawTopTokens(inputs.logits, inputs.sampling, inputs.t, 40);
      ASSERT_EQ(got.children.size(), 40);
      for (size_t i = 0; i < 40; ++i) ASSERT_EQ(got.children[i].token_id, expected[i].second);
    }
  });
}

TEST(DrawTopTokens, ABrokenOrEmptyRowHasNoChildren) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(DrawTopTokens(std::vector<float>{0, kInfinity}, {}, 0, 2).status, DrawStatus::kNonFiniteLogits);
  EXPECT_EQ(DrawTopTokens(std::vector<float>{-kInfinity, -kInfinity}, {}, 0, 2).status, DrawStatus::kEmptySupport);
  EXPECT_EQ(DrawTopTokens(std::vector<float>{-kInfinity, 3}, {.temperature = 0}, 0, 2).children.size(), 1);
}

TEST(BranchRows, EachRowIsItsOwnAndPaddingHasNoPart) {
  constexpr int32_t kNumTokens = 300, kWidth = 320, kNumRows = 7;
  RandomValues random(34);
  std::vector<float> logits = random.Normals(kNumRows * kWidth, 3);
  for (int32_t row = 0; row < kNumRows; ++row) {
    std::fill_n(logits.begin() + row * kWidth + kNumTokens, kWidth - kNumTokens, 1e30f);
  }
  std::vector<RowToBranch> rows;
  for (int32_t i = 0; i < 50; ++i) {
    rows.push_back({.logit_row = random.Below(kNumRows),
                    .sampling = {.temperature = i % 3 == 0 ? 0.0f : 0.9f, .seed = static_cast<uint64_t>(i)},
                    .t = static_cast<uint32_t>(random.Below(1000)),
                    .num_children = 1 + random.Below(9)});
  }
  std::vector<RowChildren> children(rows.size());
  const auto backend = MakeBackend({.num_threads = 2}).backend;
  backend->BranchRows({.logits = ConstTensorView{logits.data(), DType::kF32, Shape(kNumRows, kWidth)},
                       .num_tokens = kNumTokens,
                       .rows = rows,
                       .children = children});
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::span row(logits.data() + rows[i].logit_row * kWidth, kNumTokens);
    const RowChildren alone = DrawTopTokens(row, rows[i].sampling, rows[i].t, rows[i].num_children);
    ASSERT_EQ(children[i].children.size(), alone.children.size());
    for (size_t child = 0; child < alone.children.size(); ++child) {
      EXPECT_EQ(children[i].children[child].token_id, alone.children[child].token_id);
      EXPECT_EQ(children[i].children[child].score, alone.children[child].score);
      EXPECT_LT(children[i].children[child].token_id, kNumTokens);
    }
  }
}

}  // namespace
}  // namespace foretoken::kernels::cpu
