// SPDX-License-Identifier: Apache-2.0
// The rows of prompts in a simulated step. If this test fails, a simulation predicts first tokens that come too early
// or too late.
#include "client/simulate/prompt_share.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "verifier_service/engine/engine.h"
#include "verifier_service/planner/prompt_rows.h"

namespace foretoken::client {
namespace {

using ::testing::ElementsAre;

// One row takes 10 ms, each further row 1 ms.
const std::vector<ProfileRows> kRows = {{.num_rows = 1, .step_ms = 10}, {.num_rows = 101, .step_ms = 110}};

int32_t NumRows(const std::vector<SimulatedPrompt>& prompts, const std::vector<double>& first_token_ms) {
  return NumPromptRows(prompts, first_token_ms, {}, kRows);
}

TEST(PromptBounds, AreTheVerifiersUnlessTheyAreSet) {
  const PromptBounds bounds;
  const verifier::PromptLimits limits;
  EXPECT_EQ(bounds.max_step_rows, verifier::EngineConfig().max_step_rows);
  EXPECT_FLOAT_EQ(static_cast<float>(bounds.max_inter_token_growth), limits.max_inter_token_growth);
  EXPECT_EQ(bounds.max_burst_prompt_tokens, limits.max_burst_prompt_tokens);
  EXPECT_EQ(absl::Milliseconds(bounds.burst_window_ms), limits.burst_window);
}

TEST(NumPromptRows, WithoutDecodingSequencesPromptsGetTheStep) {
  EXPECT_EQ(NumRows({{.num_left = 20}}, {}), 512);
  EXPECT_EQ(NumRows({}, {0}), 0);
}

TEST(NumPromptRows, LaterPromptsAreBounded) {
  EXPECT_EQ(NumRows({{.num_left = 20, .began_ms = 101}}, {0}), 4) << "14 ms for 10 ms";
  EXPECT_EQ(NumRows({{.num_left = 20, .began_ms = 101}}, {0, 0}), 4) << "15.4 ms for 11 ms";
}

TEST(NumPromptRows, PromptsOfOneBurstAreNot) {
  EXPECT_EQ(NumRows({{.num_left = 20, .began_ms = 100}}, {0}), 511);
  EXPECT_EQ(NumRows({{.num_left = 2000, .began_ms = 100}}, {0}), 4) << "a long prompt is always bounded";
}

TEST(NumPromptRows, ManyPromptsBesideFewSequencesGetMore) {
  const SimulatedPrompt later = {.num_left = 20, .began_ms = 500};
  const std::vector<SimulatedPrompt> prompts = {later, later, later};
  EXPECT_EQ(NumPromptRows(prompts, std::vector<double>{0}, {.max_inter_token_growth = 1.5}, kRows), 15)
      << "1 + 3 x 0.5 times 10 ms";
}

TEST(NumPromptRows, ABurstBesideALaterPromptGetsItsOwnRows) {
  EXPECT_EQ(NumRows({{.num_left = 30, .began_ms = 50}, {.num_left = 20, .began_ms = 500}}, {0, 0}), 30);
}

TEST(SharePromptRows, TheOldestGetsAQuarterAndTheShortestTheRest) {
  const std::vector<SimulatedPrompt> prompts = {{.num_left = 30}, {.num_left = 5}, {.num_left = 10}};
  EXPECT_THAT(SharePromptRows(prompts, 8), ElementsAre(2, 5, 1));
  EXPECT_THAT(SharePromptRows(prompts, 512), ElementsAre(30, 5, 10));
  EXPECT_THAT(SharePromptRows({}, 8), ElementsAre());
}

}  // namespace
}  // namespace foretoken::client
