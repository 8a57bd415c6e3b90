// SPDX-License-Identifier: Apache-2.0
// What masks cost their tenants. If this test fails, a tenant pays for masks that delay nobody, or slow masks are free.
#include "verifier_service/engine/grammar_masks.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/testing/paths.h"
#include "tests/verifier_service/engine/lone_sequences.h"

namespace foretoken::verifier {
namespace {

class ChargeMasksTest : public ::testing::Test {
 protected:
  static constexpr int kNumNext = 30;

  // The first sample's masks take 10 ms of a step. Returns how many of the next four samples belong to the other
  // tenant.
  int NumOfOtherTenant(const StepPace& pace) {
    LoneSequences sequences;
    Scheduler scheduler({.max_running = 1}, 64);
    const auto begin_next = [&] {
      scheduler.Admit(absl::UnixEpoch(), [&](const auto& active) { return sequences.Make(active); });
      return scheduler.running().front().get();
    };
    for (int i = 0; i <= kNumNext; ++i) {
      for (const std::string tenant : {"formed", "other"}) {
        scheduler.Enqueue(sequences.MakeRequest({.tenant = tenant, .prompt = {1, 2, 3}, .stop = {.max_tokens = 8}}),
                          absl::UnixEpoch());
      }
    }
    int num_of_other = 0;
    for (int i = 0; i <= kNumNext; ++i) {
      Sequence& sequence = *begin_next();
      if (i == 0) {
        EXPECT_EQ(sequence.request().tenant, "formed");
        const auto clock = [now = absl::UnixEpoch()]() mutable { return now += absl::Milliseconds(10); };
        sequence.grammar.emplace(grammar_, tokenizer_, kNumTokens, clock);
        (void)sequence.grammar->next_mask();
        const std::vector<PlannedSequence> plan = {{.sequence = &sequence, .num_chain = 1}};
        ChargeMasks(plan, pace, scheduler);
        ChargeMasks(plan, pace, scheduler);  // the same time is paid for once
      } else {
        num_of_other += sequence.request().tenant == "other" ? 1 : 0;
      }
      sequence.token_ids.resize(sequence.token_ids.size() + 8);  // with the prompt, a sample costs eleven tokens
      sequence.is_finished = true;
      scheduler.RemoveFinished([](Sequence&) {});
    }
    return num_of_other;
  }

  static constexpr int32_t kNumTokens = 4093;
  const tokenizer::Tokenizer tokenizer_ = tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/target")).value();
  const GrammarVocabulary vocabulary_{TokensOf(tokenizer_.vocabulary(), kNumTokens, std::vector<int32_t>{4092})};
  const std::shared_ptr<const Grammar> grammar_ =
      Grammar::Compile({.kind = GrammarKind::kRegex, .text = "[a-z]+"}, vocabulary_).value();
};

TEST_F(ChargeMasksTest, ADelayCostsTheTokensOfItsTime) {
  EXPECT_EQ(NumOfOtherTenant({.num_tokens = 1000, .ms = 20}), kNumNext);
  EXPECT_EQ(NumOfOtherTenant({.num_tokens = 1000, .ms = 20, .hidden_ms = 5}), kNumNext);
  EXPECT_EQ(NumOfOtherTenant({.num_tokens = 0, .ms = 20}), kNumNext / 2);
}

TEST_F(ChargeMasksTest, TimeBehindTheDevicesWorkCostsNothing) {
  EXPECT_EQ(NumOfOtherTenant({.num_tokens = 1000, .ms = 20, .hidden_ms = 10}), kNumNext / 2);
  EXPECT_EQ(NumOfOtherTenant({.num_tokens = 1000, .ms = 20, .hidden_ms = 30}), kNumNext / 2);
}

// A hundred tokens are as many as nine samples cost.
TEST_F(ChargeMasksTest, ClocksThatDifferCostNoMoreThanAHundredSteps) {
  EXPECT_NEAR(NumOfOtherTenant({.num_tokens = 1, .ms = 10}), 9 + (kNumNext - 9) / 2, 1);
  EXPECT_EQ(NumOfOtherTenant({.num_tokens = 1000, .ms = 0}), kNumNext / 2);
}

}  // namespace
}  // namespace foretoken::verifier
