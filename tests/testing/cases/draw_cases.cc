// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/cases/draw_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/keyed_coins.h"
#include "tests/testing/cases/random_draw_inputs.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {

using kernels::DrawStatus;
using kernels::SamplingParams;
using reference::DrawInputs;

void ExpectTheReferencesDraws(const DrawOp& draw, int num_rounds) {
  RandomValues random(5);
  for (int i = 0; i < num_rounds; ++i) {
    const DrawInputs inputs = RandomDrawInputs(random);
    const std::optional<int32_t> expected = reference::DrawToken(inputs);
    const DrawnToken drawn = draw(inputs);
    ASSERT_EQ(drawn.status, expected.has_value() ? DrawStatus::kOk : DrawStatus::kEmptySupport) << i;
    ASSERT_EQ(drawn.token_id, expected.value_or(0)) << i;
  }
}

void ExpectTheReferencesDrawsByCoin(const DrawOp& draw, int num_rounds) {
  RandomValues random(5);
  for (int i = 0; i < num_rounds; ++i) {
    const DrawInputs inputs = RandomDrawInputs(random);
    const std::vector<double> distribution = reference::FilteredDistribution(inputs);
    const DrawnToken drawn = draw(inputs);
    ASSERT_EQ(drawn.status, distribution.empty() ? DrawStatus::kEmptySupport : DrawStatus::kOk) << i;
    if (distribution.empty()) continue;
    kernels::KeyedCoins coins(inputs.sampling.seed, inputs.sampling.sample_index);
    coins.Begin(inputs.t);
    ASSERT_EQ(drawn.token_id, coins.Draw(distribution)) << i;
  }
}

void ExpectDrawsByCoinFromAHugeVocabulary(const DrawOp& draw, uint32_t num_draws) {
  RandomValues random(7);
  DrawInputs inputs{.logits = random.Normals(300001, 1), .sampling = {.seed = 5}};
  const std::vector<double> distribution = reference::FilteredDistribution(inputs);
  for (inputs.t = 0; inputs.t < num_draws; ++inputs.t) {
    kernels::KeyedCoins coins(inputs.sampling.seed, 0);
    coins.Begin(inputs.t);
    ASSERT_EQ(draw(inputs).token_id, coins.Draw(distribution)) << inputs.t;
  }
}

void ExpectTheReferencesDrawsOnALargeVocabulary(const DrawOp& draw, uint32_t num_draws) {
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
    for (inputs.t = 0; inputs.t < num_draws; ++inputs.t) ASSERT_EQ(draw(inputs).token_id, reference::DrawToken(inputs));
  }
}

void ExpectTiesToGoToTheLowestId(const DrawOp& draw) {
  DrawInputs inputs;
  inputs.logits.assign(3000, 1);
  inputs.logits[2500] = inputs.logits[70] = inputs.logits[71] = 2;
  inputs.sampling.temperature = 0;
  EXPECT_EQ(draw(inputs).token_id, 70);
  inputs.sampling.temperature = 1;
  inputs.sampling.top_k = 1;
  EXPECT_EQ(draw(inputs).token_id, 70);
  inputs.sampling = {.top_p = 0.0001f};
  EXPECT_EQ(draw(inputs).token_id, 70);
  inputs.sampling = {.min_p = 1};
  for (inputs.t = 0; inputs.t < 20; ++inputs.t) {
    const int32_t id = draw(inputs).token_id;
    EXPECT_TRUE(id == 70 || id == 71 || id == 2500) << id;
  }
}

// Ties at the cut: a draw can give the kept tokens and never the others.
void ExpectDrawsFromARowOfOneValue(const DrawOp& draw, uint32_t num_draws) {
  DrawInputs inputs;
  for (const size_t num_tokens : {1, 17, 1025, 5000}) {
    inputs.logits.assign(num_tokens, -3);
    for (const SamplingParams& filters :
         {SamplingParams{}, SamplingParams{.top_k = 2}, SamplingParams{.top_k = 65}, SamplingParams{.top_k = 900},
          SamplingParams{.top_p = 0.5f}, SamplingParams{.temperature = 3, .top_k = 70, .top_p = 0.3f},
          SamplingParams{.min_p = 1}}) {
      inputs.sampling = filters;
      for (inputs.t = 0; inputs.t < num_draws; ++inputs.t)
        ASSERT_EQ(draw(inputs).token_id, reference::DrawToken(inputs));
    }
  }
}

void ExpectSumsThatOverflowToBeFinite(const DrawOp& draw) {
  DrawInputs inputs;
  inputs.logits.assign(3000, 0);
  // Ids 32 apart meet in one lane of every instruction set. Their sum becomes +inf, and NaN if -inf follows.
  for (size_t id = 0; id < 3000; id += 32) inputs.logits[id] = id % 1024 < 512 || id < 1024 ? 3e38f : -kInfinity;
  inputs.logits[1234] = 3.2e38f;
  inputs.sampling.temperature = 0;
  EXPECT_EQ(draw(inputs).status, DrawStatus::kOk);
  EXPECT_EQ(draw(inputs).token_id, 1234);
}

void ExpectTheMaximumInEveryPlace(const DrawOp& draw, size_t num_places) {
  for (const size_t num_tokens : {1, 3, 15, 16, 17, 1023, 1024, 1025, 2049}) {
    for (size_t id = 0; id < num_tokens; id += num_tokens / num_places + 1) {
      DrawInputs inputs;
      inputs.logits.assign(num_tokens, -5);
      inputs.logits[id] = -4;
      inputs.sampling.temperature = 9e-6f;
      ASSERT_EQ(draw(inputs).token_id, static_cast<int32_t>(id));
      inputs.sampling.temperature = 0.01f;  // others are 100 below, so no noise can lift them
      ASSERT_EQ(draw(inputs).token_id, static_cast<int32_t>(id));
    }
  }
}

void ExpectNonFiniteLogitsToShow(const DrawOp& draw) {
  for (const float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const size_t id : {size_t{0}, size_t{100}, size_t{1024}, size_t{1499}}) {
      DrawInputs inputs;
      inputs.logits.assign(1500, 0);
      inputs.logits[id] = bad;
      for (const float temperature : {0.0f, 1.0f}) {
        inputs.sampling.temperature = temperature;
        inputs.mask.clear();
        EXPECT_EQ(draw(inputs).status, DrawStatus::kNonFiniteLogits) << id;
        inputs.mask = MaskWithout(1500, {static_cast<int32_t>(id)});
        EXPECT_EQ(draw(inputs).status, DrawStatus::kNonFiniteLogits) << "hidden by a mask: " << id;
      }
    }
  }
}

void ExpectAnEmptySupportToShow(const DrawOp& draw) {
  DrawInputs inputs;
  inputs.logits = {-kInfinity, 1, 2};
  inputs.mask = MaskWithout(3, {1, 2});
  EXPECT_EQ(draw(inputs).status, DrawStatus::kEmptySupport);
  inputs.sampling.temperature = 0;
  EXPECT_EQ(draw(inputs).status, DrawStatus::kEmptySupport);
  inputs.mask = MaskWithout(3, {2});
  EXPECT_EQ(draw(inputs).token_id, 1);
}

void ExpectIdsOutsideTheVocabularyToBeIgnored(const DrawOp& draw) {
  DrawInputs inputs;
  inputs.logits = {0, 1};
  inputs.sampling = {.temperature = 0, .presence_penalty = 5};
  inputs.bias = {{2, 100}, {-1, 100}};
  inputs.counts = {{7, 1}};
  inputs.path_token_ids = {-3, 1 << 30};
  EXPECT_EQ(draw(inputs).token_id, 1);
}

}  // namespace foretoken::testing
