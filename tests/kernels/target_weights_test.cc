// SPDX-License-Identifier: Apache-2.0
// The weights of rejection sampling against tests/reference, on every instruction set. If this test fails, the output
// of rejection sampling does not follow the model's distribution.
#include "kernels/cpu/draw/target_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/testing/cases/for_each_isa.h"
#include "tests/testing/cases/random_draw_inputs.h"

namespace foretoken::kernels::cpu {
namespace {

RowWeights WeightsOf(const reference::DrawInputs& inputs) {
  return TargetWeights({.logits = inputs.logits,
                        .sampling = inputs.sampling,
                        .bias = inputs.bias,
                        .counts = inputs.counts,
                        .path_token_ids = inputs.path_token_ids,
                        .mask = inputs.mask.empty() ? nullptr : inputs.mask.data()});
}

// A weight is exp of an f32 whose error is two roundings of at most |(x - max) / T| 2^-24 each; the vector exp adds a
// few units of its own. Relative to a probability this is (|x - max| / T + 4) 2^-22, where |x - max| / T is below 90
// for every weight above 0. The top_p cut may differ if the sum before a token is within rounding of top_p.
TEST(TargetWeights, AreTheReferencesProbabilities) {
  constexpr double kTolerance = 94 * 0x1p-22;
  testing::ForEachIsa([] {
    testing::RandomValues random(3);
    int num_drawable = 0, num_other_cuts = 0;
    for (int round = 0; round < 1500; ++round) {
      const reference::DrawInputs inputs = testing::RandomDrawInputs(random);
      const std::vector<double> expected = reference::FilteredDistribution(inputs);
      const RowWeights row = WeightsOf(inputs);
      ASSERT_EQ(row.status, expected.empty() ? DrawStatus::kEmptySupport : DrawStatus::kOk);
      if (expected.empty()) continue;
      ++num_drawable;
      ASSERT_EQ(row.weights.size(), inputs.logits.size());
      const double sum = SumOf(row.weights);
      bool same_support = true;
      for (size_t i = 0; i < expected.size(); ++i) {
        // An exp below the smallest f32 is 0.
        if ((row.weights[i] > 0) != (expected[i] > 0) && expected[i] > 1e-37) same_support = false;
      }
      if (!same_support) {
        ++num_other_cuts;
        continue;
      }
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(row.weights[i] / sum, expected[i], kTolerance * expected[i] + 1e-37) << round << " token " << i;
      }
    }
    EXPECT_GT(num_drawable, 1000);
    EXPECT_LE(num_other_cuts, 2);
  });
}

TEST(TargetWeights, NameTheFaultOfARow) {
  testing::ForEachIsa([] {
    reference::DrawInputs inputs{.logits = std::vector<float>(100, 1)};
    inputs.logits[70] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(WeightsOf(inputs).status, DrawStatus::kNonFiniteLogits);
    inputs.logits.assign(100, -std::numeric_limits<float>::infinity());
    EXPECT_EQ(WeightsOf(inputs).status, DrawStatus::kEmptySupport);
  });
}

}  // namespace
}  // namespace foretoken::kernels::cpu
