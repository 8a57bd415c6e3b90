// SPDX-License-Identifier: Apache-2.0
// The rows of prompts in a step. If this test fails, running streams stutter when prompts arrive, or prompts wait too
// long for their first token.
#include "verifier_service/planner/prompt_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;

const absl::Time kFirstStep = absl::UnixEpoch();

// Returns costs of 10 ms per step plus 1 ms per row.
StepCost LearnedRows(int32_t max_rows) {
  StepCost cost(max_rows);
  for (int32_t rows = 1; rows <= max_rows; ++rows) cost.Observe({.num_rows = rows}, 10.0f + static_cast<float>(rows));
  return cost;
}

WaitingPrompt Prompt(int32_t num_tokens, absl::Time began, int32_t priority = 0) {
  return {.num_left = num_tokens, .max_rows = num_tokens, .priority = priority, .began = began};
}

// Returns the rows of prompts beside streams with these times of their first tokens.
int32_t NumRows(const std::vector<WaitingPrompt>& prompts, const std::vector<absl::Time>& first_tokens,
                const PromptLimits& limits, int32_t max_rows = 64) {
  const PromptStep step = {.decoding = {.num_rows = static_cast<int32_t>(first_tokens.size())},
                           .first_tokens = first_tokens,
                           .max_rows = max_rows};
  return NumPromptRows(prompts, step, limits, LearnedRows(max_rows));
}

TEST(NumPromptRows, KeepsTheStepWithinTheGrowthThatStreamsMaySee) {
  const std::vector<absl::Time> streams(4, kFirstStep);
  const std::vector<WaitingPrompt> later = {Prompt(4096, kFirstStep + absl::Seconds(1))};
  // 14 ms may grow to 21 ms, which is 11 rows in total.
  EXPECT_GE(NumRows(later, streams, {.max_inter_token_growth = 1.5f}), 6);
  EXPECT_LE(NumRows(later, streams, {.max_inter_token_growth = 1.5f}), 7);
  EXPECT_EQ(NumRows(later, streams, {.max_inter_token_growth = 1}), 1) << "every prompt ends";
  EXPECT_EQ(NumRows(later, {}, {.max_inter_token_growth = 1}), 64) << "no sequence decodes";
  EXPECT_EQ(NumRows(later, std::vector(64, kFirstStep), {}), 0) << "the step is full";
  EXPECT_EQ(NumRows({}, streams, {}), 0);
}

TEST(NumPromptRows, GrowthFollowsThePromptsPerProtectedStream) {
  const PromptLimits limits = {.max_inter_token_growth = 1.5f};
  const absl::Time later = kFirstStep + absl::Seconds(1);
  const auto beside_one = [&](size_t num_prompts) {
    return NumRows(std::vector(num_prompts, Prompt(200, later)), {kFirstStep}, limits, 512);
  };
  // 11 ms may grow to 16.5, 22 and 55 ms.
  EXPECT_NEAR(beside_one(1), 5, 1);
  EXPECT_NEAR(beside_one(2), 11, 1);
  EXPECT_NEAR(beside_one(8), 44, 2);
  // With as many streams as prompts the growth is the plain one: 18 ms may grow to 27 ms.
  EXPECT_NEAR(NumRows(std::vector(8, Prompt(200, later)), std::vector(8, kFirstStep), limits, 512), 9, 1);
}

TEST(NumPromptRows, AStreamIsNotProtectedFromThePromptsOfItsOwnBurst) {
  const PromptLimits limits = {.burst_window = absl::Milliseconds(100)};
  const std::vector<absl::Time> streams(15, kFirstStep);
  EXPECT_EQ(NumRows({Prompt(200, kFirstStep - absl::Milliseconds(50))}, streams, limits), 49)
      << "the last of the burst";
  EXPECT_EQ(NumRows({Prompt(200, kFirstStep + absl::Milliseconds(100))}, streams, limits), 49);
  EXPECT_LT(NumRows({Prompt(200, kFirstStep + absl::Milliseconds(101))}, streams, limits), 20);
  // An older stream is protected from all of the burst: 26 ms may grow to 26 * (1 + 0.4 * 2) ms.
  std::vector<absl::Time> with_older = streams;
  with_older[3] = kFirstStep - absl::Seconds(1);
  EXPECT_NEAR(NumRows({Prompt(200, kFirstStep), Prompt(200, kFirstStep)}, with_older, limits), 20, 2);
  // A sequence without a first token is not a stream yet.
  EXPECT_EQ(NumRows({Prompt(200, kFirstStep)}, {absl::InfiniteFuture()}, limits), 63);
}

TEST(NumPromptRows, APromptWithManyTokensIsNoPeer) {
  const PromptLimits limits = {.max_burst_prompt_tokens = 300};
  EXPECT_EQ(NumRows({Prompt(300, kFirstStep)}, {kFirstStep}, limits), 63);
  EXPECT_LT(NumRows({Prompt(301, kFirstStep)}, {kFirstStep}, limits), 10);
}

TEST(NumPromptRows, ALaterPromptWaitsBesideABurst) {
  // The step may compute all remaining tokens of the burst. The later prompt adds no rows.
  const std::vector<WaitingPrompt> prompts = {Prompt(20, kFirstStep), Prompt(200, kFirstStep + absl::Seconds(9))};
  EXPECT_EQ(NumRows(prompts, std::vector(4, kFirstStep), {}), 20);
}

TEST(SharePromptRows, AShortPromptBehindALongPromptGoesFirst) {
  const WaitingPrompt prompts[] = {Prompt(8192, kFirstStep), Prompt(100, kFirstStep)};
  EXPECT_THAT(SharePromptRows(prompts, 512), ElementsAre(412, 100));
  EXPECT_THAT(SharePromptRows(prompts, 16), ElementsAre(4, 12));
  EXPECT_THAT(SharePromptRows(prompts, 1), ElementsAre(1, 0));
  EXPECT_THAT(SharePromptRows(prompts, 0), ElementsAre(0, 0));
}

TEST(SharePromptRows, TheOldestPromptEndsDespiteShorterPrompts) {
  int32_t num_left = 8192;
  int num_steps = 0;
  for (; num_left > 0; ++num_steps) {
    const WaitingPrompt prompts[] = {Prompt(num_left, kFirstStep), Prompt(50, kFirstStep), Prompt(50, kFirstStep)};
    num_left -= SharePromptRows(prompts, 64)[0];
  }
  EXPECT_LE(num_steps, 8192 / 16);
}

TEST(SharePromptRows, EqualPromptsBeginOneAfterAnother) {
  const WaitingPrompt prompts[] = {Prompt(100, kFirstStep), Prompt(100, kFirstStep), Prompt(100, kFirstStep)};
  EXPECT_THAT(SharePromptRows(prompts, 150), ElementsAre(100, 50, 0));
  const WaitingPrompt shorter_last[] = {Prompt(100, kFirstStep), Prompt(90, kFirstStep), Prompt(80, kFirstStep)};
  EXPECT_THAT(SharePromptRows(shorter_last, 100), ElementsAre(25, 0, 75));
}

TEST(SharePromptRows, PriorityGoesBeforeLength) {
  const WaitingPrompt prompts[] = {Prompt(100, kFirstStep), Prompt(50, kFirstStep),
                                   Prompt(400, kFirstStep, /*priority=*/1)};
  EXPECT_THAT(SharePromptRows(prompts, 100), ElementsAre(25, 0, 75));
}

TEST(SharePromptRows, TenantsShareTheRowsWhateverTheirPriorities) {
  const auto of = [](const char* tenant, int32_t num_tokens, int32_t priority, double weight = 1) {
    WaitingPrompt prompt = Prompt(num_tokens, kFirstStep, priority);
    prompt.tenant = tenant;
    prompt.weight = weight;
    return prompt;
  };
  const WaitingPrompt flood[] = {of("f", 400, 100), of("f", 400, 100), of("f", 400, 100), of("t", 400, 0)};
  EXPECT_THAT(SharePromptRows(flood, 160), ElementsAre(100, 0, 0, 60));
  const WaitingPrompt few[] = {of("f", 400, 100), of("f", 400, 100), of("t", 10, 0)};
  EXPECT_THAT(SharePromptRows(few, 160), ElementsAre(150, 0, 10)) << "what a tenant does not need goes to the others";
  const WaitingPrompt weighted[] = {of("f", 400, 0), of("f", 400, 0), of("t", 400, 0, /*weight=*/3)};
  EXPECT_THAT(SharePromptRows(weighted, 160), ElementsAre(70, 0, 90));
}

TEST(SharePromptRows, UnusedRowsOfAPromptGoToTheNext) {
  WaitingPrompt scored = Prompt(1000, kFirstStep);
  scored.max_rows = 64;
  const WaitingPrompt prompts[] = {scored, Prompt(300, kFirstStep), Prompt(40, kFirstStep)};
  EXPECT_THAT(SharePromptRows(prompts, 512), ElementsAre(64, 300, 40));
}

}  // namespace
}  // namespace foretoken::verifier
