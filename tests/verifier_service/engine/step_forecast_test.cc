// SPDX-License-Identifier: Apache-2.0
// What a planned step is expected to take and to give. If this test fails, proposers look faster or slower than they
// are.
#include "verifier_service/engine/step_forecast.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/verifier_service/engine/lone_sequences.h"

namespace foretoken::verifier {
namespace {

class StepForecastTest : public ::testing::Test {
 protected:
  StepForecastTest() {
    for (int32_t rows = 1; rows <= 32; ++rows) cost_.Observe({.num_rows = rows}, 6 + 4 * static_cast<float>(rows));
    decoding_->num_computed = 3;
    late_->num_computed = 2;
  }

  LoneSequences sequences_;
  const std::unique_ptr<Sequence> decoding_ = sequences_.Make({.prompt = {1, 2, 3, 4}});
  const std::unique_ptr<Sequence> late_ = sequences_.Make({.prompt = std::vector<int32_t>(12, 5)});
  StepCost cost_{32};
};

TEST_F(StepForecastTest, APromptAddsItsRows) {
  std::vector<PlannedSequence> plan = {{.sequence = decoding_.get(), .num_chain = 1},
                                       {.sequence = late_.get(), .num_chain = 8}};
  const StepForecast begun = Forecast(plan, {}, cost_);
  EXPECT_EQ(begun.num_decoding, 1);
  EXPECT_EQ(begun.num_emitting, 1);
  EXPECT_EQ(begun.num_prompt_rows, 8);
  EXPECT_NEAR(begun.step_ms_without_trees, 6 + 4 * 9, 0.1);
  EXPECT_NEAR(begun.prompt_ms, 4 * 8, 0.1);
  plan[1].num_chain = 10;  // the prompt ends and emits its first token, but does not decode yet
  const StepForecast ended = Forecast(plan, {}, cost_);
  EXPECT_EQ(ended.num_decoding, 1);
  EXPECT_EQ(ended.num_emitting, 2);
  EXPECT_NEAR(ended.prompt_ms, 4 * 10, 0.1);
}

TEST_F(StepForecastTest, WithoutPromptsNothingIsTheirs) {
  const PlannedSequence planned = {.sequence = decoding_.get(), .num_chain = 1};
  EXPECT_EQ(Forecast({&planned, 1}, {}, cost_).prompt_ms, 0);
}

TEST_F(StepForecastTest, AStepThatDecodesNothingIsItsPrompts) {
  const PlannedSequence planned = {.sequence = late_.get(), .num_chain = 8};
  const StepForecast forecast = Forecast({&planned, 1}, {}, cost_);
  EXPECT_EQ(forecast.num_decoding, 0);
  EXPECT_EQ(forecast.prompt_ms, forecast.step_ms_without_trees);
}

}  // namespace
}  // namespace foretoken::verifier
