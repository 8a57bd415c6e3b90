// SPDX-License-Identifier: Apache-2.0
// Drawing from a row against tests/reference, on every instruction set.
#include "kernels/cpu/draw_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "tests/reference/sampling.h"
#include "tests/testing/for_each_isa.h"
#include "tests/testing/random_draw_inputs.h"
#include "tests/testing/random_values.h"

namespace foretoken::kernels::cpu {
namespace {

using reference::DrawInputs;
using testing::ForEachIsa;
using testing::RandomDrawInputs;
using testing::RandomValues;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

RowDraw Draw(const DrawInputs& inputs) {
  return DrawRow({.logits = inputs.logits,
                  .sampling = inputs.sampling,
                  .bias = inputs.bias,
                  .counts = inputs.counts,
                  .path_token_ids = inputs.path_token_ids,
                  .mask = inputs.mask.empty() ? nullptr : inputs.mask.data()},
                 inputs.t);
}

TEST(DrawRow, EqualsTheReferenceUnderAllFiltersTogether) {
  ForEachIsa([] {
    RandomValues random(5);
    for (int i = 0; i < 3000; ++i) {
      const DrawInputs inputs = RandomDrawInputs(random);
      const std::optional<int32_t> expected = reference::DrawToken(inputs);
      const RowDraw draw = Draw(inputs);
      ASSERT_EQ(draw.status, expected.has_value() ? DrawStatus::kOk : DrawStatus::kEmptySupport) << i;
      ASSERT_EQ(draw.token_id, expected.value_or(0)) << i;
    }
  });
}

TEST(DrawRow, EqualsTheReferenceOnALargeVocabulary) {
  ForEachIsa([] {
    RandomValues random(6);
    DrawInputs inputs;
    inputs.logits = random.Normals(128256, 2);
    for (const SamplingParams& filters :
         {SamplingParams{.temperature = 1}, SamplingParams{.temperature = 0.3f},
          SamplingParams{.temperature = 2, .top_p = 0.95f}, SamplingParams{.temperature = 1, .top_k = 50},
          SamplingParams{.temperature = 1, .top_k = 500}, SamplingParams{.temperature = 1.5f, .top_k = 8000},
          SamplingParams{.temperature = 8, .top_k = 40000, .min_p = 0.2f}, SamplingParams{.top_k = 128255},
          SamplingParams{.temperature = 1, .top_k = 100000, .top_p = 0.5f}, SamplingParams{.min_p = 0.01f}}) {
      inputs.sampling = filters;
      inputs.sampling.seed = 0x123456789abcdef0;
      for (inputs.t = 0; inputs.t < 4; ++inputs.t) ASSERT_EQ(Draw(inputs).token_id, reference::DrawToken(inputs));
    }
  });
}

TEST(DrawRow, BreaksTiesByTheLowestId) {
  ForEachIsa([] {
    DrawInputs inputs;
    inputs.logits.assign(3000, 1);
    inputs.logits[2500] = inputs.logits[70] = inputs.logits[71] = 2;
    inputs.sampling.temperature = 0;
    EXPECT_EQ(Draw(inputs).token_id, 70);
    inputs.sampling.temperature = 1;
    inputs.sampling.top_k = 1;
    EXPECT_EQ(Draw(inputs).token_id, 70);
    inputs.sampling = {.top_p = 0.0001f};
    EXPECT_EQ(Draw(inputs).token_id, 70);
    inputs.sampling = {.min_p = 1};
    for (inputs.t = 0; inputs.t < 20; ++inputs.t) {
      const int32_t id = Draw(inputs).token_id;
      EXPECT_TRUE(id == 70 || id == 71 || id == 2500) << id;
    }
  });
}

// Ties at the cut that are not kept win nothing, and those that are do.
TEST(DrawRow, DrawsFromARowOfOneValue) {
  ForEachIsa([] {
    DrawInputs inputs;
    for (const size_t num_tokens : {1, 17, 1025, 5000}) {
      inputs.logits.assign(num_tokens, -3);
      for (const SamplingParams& filters :
           {SamplingParams{}, SamplingParams{.top_k = 2}, SamplingParams{.top_k = 900}, SamplingParams{.top_p = 0.5f},
            SamplingParams{.temperature = 3, .top_k = 70, .top_p = 0.3f}, SamplingParams{.min_p = 1}}) {
        inputs.sampling = filters;
        for (inputs.t = 0; inputs.t < 8; ++inputs.t) ASSERT_EQ(Draw(inputs).token_id, reference::DrawToken(inputs));
      }
    }
  });
}

TEST(DrawRow, SumsThatOverflowDoNotMakeARowNonFinite) {
  ForEachIsa([] {
    DrawInputs inputs;
    inputs.logits.assign(3000, 3e38f);
    for (size_t id = 1; id < 3000; id += 3) inputs.logits[id] = -kInfinity;
    for (size_t id = 2; id < 3000; id += 3) inputs.logits[id] = -3e38f;
    inputs.logits[1234] = 3.2e38f;
    inputs.sampling.temperature = 0;
    EXPECT_EQ(Draw(inputs).status, DrawStatus::kOk);
    EXPECT_EQ(Draw(inputs).token_id, 1234);
  });
}

TEST(DrawRow, FindsTheMaximumInEveryPlace) {
  ForEachIsa([] {
    for (const size_t num_tokens : {1, 3, 15, 16, 17, 1023, 1024, 1025, 2049}) {
      for (size_t id = 0; id < num_tokens; id += num_tokens / 40 + 1) {
        DrawInputs inputs;
        inputs.logits.assign(num_tokens, -5);
        inputs.logits[id] = -4;
        inputs.sampling.temperature = 9e-6f;
        ASSERT_EQ(Draw(inputs).token_id, static_cast<int32_t>(id));
        inputs.sampling.temperature = 0.01f;  // 100 below: the noise cannot lift any other
        ASSERT_EQ(Draw(inputs).token_id, static_cast<int32_t>(id));
      }
    }
  });
}

TEST(DrawRow, ReportsNonFiniteLogitsWhereverTheyStand) {
  ForEachIsa([] {
    for (const float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      for (const size_t id : {size_t{0}, size_t{100}, size_t{1024}, size_t{1499}}) {
        DrawInputs inputs;
        inputs.logits.assign(1500, 0);
        inputs.logits[id] = bad;
        for (const float temperature : {0.0f, 1.0f}) {
          inputs.sampling.temperature = temperature;
          inputs.mask.clear();
          EXPECT_EQ(Draw(inputs).status, DrawStatus::kNonFiniteLogits) << id;
          inputs.mask = testing::MaskWithout(1500, {static_cast<int32_t>(id)});
          EXPECT_EQ(Draw(inputs).status, DrawStatus::kNonFiniteLogits) << "hidden by a mask: " << id;
        }
      }
    }
  });
}

TEST(DrawRow, ReportsAnEmptySupport) {
  DrawInputs inputs;
  inputs.logits = {-kInfinity, 1, 2};
  inputs.mask = testing::MaskWithout(3, {1, 2});
  EXPECT_EQ(Draw(inputs).status, DrawStatus::kEmptySupport);
  inputs.sampling.temperature = 0;
  EXPECT_EQ(Draw(inputs).status, DrawStatus::kEmptySupport);
  inputs.mask = testing::MaskWithout(3, {2});
  EXPECT_EQ(Draw(inputs).token_id, 1);
}

TEST(DrawRow, IgnoresIdsOutsideTheVocabulary) {
  DrawInputs inputs;
  inputs.logits = {0, 1};
  inputs.sampling = {.temperature = 0, .presence_penalty = 5};
  inputs.bias = {{2, 100}, {-1, 100}};
  inputs.counts = {{7, 1}};
  inputs.path_token_ids = {-3, 1 << 30};
  EXPECT_EQ(Draw(inputs).token_id, 1);
}

// Upper quantile of chi-square by Wilson and Hilferty's approximation; z = 3.719 leaves 1e-4 above.
double ChiSquareLimit(double degrees_of_freedom) {
  const double spread = 2 / (9 * degrees_of_freedom);
  return degrees_of_freedom * std::pow(1 - spread + 3.719 * std::sqrt(spread), 3);
}

double ChiSquare(const DrawInputs& shape, const std::vector<double>& probabilities, int num_draws) {
  DrawInputs inputs = shape;
  std::vector<int> counts(inputs.logits.size());
  for (inputs.t = 0; inputs.t < num_draws; ++inputs.t) ++counts[Draw(inputs).token_id];
  double sum = 0;
  for (size_t id = 0; id < counts.size(); ++id) {
    if (probabilities[id] == 0) {
      if (counts[id] != 0) return kInfinity;
      continue;
    }
    const double expected = probabilities[id] * num_draws;
    sum += (counts[id] - expected) * (counts[id] - expected) / expected;
  }
  return sum;
}

TEST(DrawRow, FollowsTheSoftmaxOverManyPositions) {
  RandomValues random(7);
  DrawInputs inputs;
  inputs.logits = random.Normals(37, 1);
  inputs.sampling = {.temperature = 0.8f, .seed = 42};
  constexpr int kNumDraws = 200000;
  const std::vector<double> target = reference::FilteredDistribution(inputs);
  EXPECT_LT(ChiSquare(inputs, target, kNumDraws), ChiSquareLimit(36));
  // The control: a slightly other temperature is found out.
  DrawInputs control = inputs;
  control.sampling.temperature = 0.83f;
  EXPECT_GT(ChiSquare(inputs, reference::FilteredDistribution(control), kNumDraws), ChiSquareLimit(36));
}

TEST(DrawRow, FollowsTheTruncatedDistribution) {
  RandomValues random(8);
  DrawInputs inputs;
  inputs.logits = random.Normals(200, 2);
  inputs.sampling = {.top_k = 30, .top_p = 0.9f, .min_p = 0.02f, .seed = 43};
  const std::vector<double> target = reference::FilteredDistribution(inputs);
  const auto num_kept = std::count_if(target.begin(), target.end(), [](double p) { return p > 0; });
  ASSERT_GT(num_kept, 3);
  EXPECT_LT(ChiSquare(inputs, target, 100000), ChiSquareLimit(static_cast<double>(num_kept - 1)));
}

}  // namespace
}  // namespace foretoken::kernels::cpu
