// SPDX-License-Identifier: Apache-2.0
// What masks cost their tenants. If this test fails, a tenant pays for masks that delay nobody, or slow masks are free.
#include "verifier_service/engine/grammar_masks.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
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
        ChargeMasks(pace, scheduler);
        ChargeMasks(pace, scheduler);  // the same time is paid for once
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

class MaskTurnsTest : public ChargeMasksTest {
 protected:
  // Begins a sample with a grammar that takes so long for a mask, and as long to follow a token, or without one.
  Sequence& Add(std::optional<absl::Duration> mask_time) {
    scheduler_.Enqueue(sequences_.MakeRequest({.prompt = {1, 2, 3}, .stop = {.max_tokens = 8}}), absl::UnixEpoch());
    const auto make = [&](const auto& active) {
      std::unique_ptr<Sequence> sequence = sequences_.Make(active);
      if (mask_time.has_value()) {
        const auto clock = [now = absl::UnixEpoch(), time = *mask_time]() mutable { return now += time; };
        sequence->grammar.emplace(grammar_, tokenizer_, kNumTokens, clock);
      }
      turns_.Begin(*sequence);
      return sequence;
    };
    Sequence& sequence = *scheduler_.Admit(absl::UnixEpoch(), make).at(0);
    sequence.num_computed = sequence.size() - 1;
    return sequence;
  }
  // Runs a step that takes this time beside the masks, and returns the samples that took part.
  std::vector<SequenceId> Step(double other_ms) {
    const int32_t num_sit_out = turns_.Give(scheduler_);
    std::vector<SequenceId> ids;
    double mask_ms = 0;
    for (const auto& sequence : scheduler_.running()) {
      if (sequence->sits_out) continue;
      ids.push_back(sequence->id);
      if (!sequence->grammar.has_value()) continue;
      sequence->grammar->Append(letter_);
      (void)sequence->grammar->next_mask();
      mask_ms += absl::ToDoubleMilliseconds(sequence->grammar->time() - sequence->paid_grammar_time);
    }
    EXPECT_EQ(num_sit_out + ids.size(), scheduler_.running().size());
    const StepPace pace = {.num_tokens = 1, .ms = other_ms + mask_ms};
    turns_.Observe(scheduler_.running(), pace);
    ChargeMasks(pace, scheduler_);
    slow_ms_ += mask_ms;
    other_ms_ += other_ms;
    return ids;
  }

  LoneSequences sequences_;
  Scheduler scheduler_{{.max_running = 1000}, 1000};
  const int32_t letter_ = tokenizer_.Encode("a").value()[0];
  MaskTurns turns_;
  double slow_ms_ = 0, other_ms_ = 0;  // of all steps
};

TEST_F(MaskTurnsTest, SlowMasksTakeHalfOfTheTimeInTurns) {
  const SequenceId plain = Add(std::nullopt).id;
  for (int i = 0; i < 8; ++i) Add(absl::Milliseconds(5));
  std::map<SequenceId, int> num_turns;
  for (int i = 0; i < 1000; ++i) {
    for (const SequenceId id : Step(/*other_ms=*/1)) ++num_turns[id];
  }
  EXPECT_EQ(num_turns[plain], 1000);
  EXPECT_NEAR(slow_ms_ / other_ms_, 1, 0.1);
  num_turns.erase(plain);
  ASSERT_EQ(num_turns.size(), 8);
  for (const auto& [id, num] : num_turns) EXPECT_NEAR(num, num_turns.begin()->second, 1) << id;
}

TEST_F(MaskTurnsTest, AStepWaitsForTwentyMillisecondsAndOneSample) {
  Add(std::nullopt);
  for (int i = 0; i < 63; ++i) Add(absl::Milliseconds(5));
  for (int i = 0; i < 100; ++i) (void)Step(/*other_ms=*/100);  // then all samples have means
  for (int i = 0; i < 100; ++i) {
    const double before = slow_ms_;
    (void)Step(/*other_ms=*/100);
    EXPECT_LE(slow_ms_ - before, 20 + 10);
    EXPECT_GE(slow_ms_ - before, 20);
  }
}

TEST_F(MaskTurnsTest, QuickMasksAndSlowOnesAmongThemselvesDoNotWait) {
  for (int i = 0; i < 8; ++i) Add(absl::Milliseconds(5));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Step(/*other_ms=*/1).size(), 8);
  for (int i = 0; i < 8; ++i) Add(absl::Microseconds(100));
  for (int i = 0; i < 100; ++i) EXPECT_GE(Step(/*other_ms=*/0.1).size(), 8);
  EXPECT_LT(Step(/*other_ms=*/0.1).size(), 16);
}

TEST_F(MaskTurnsTest, SamplesBeginWhileTheirFirstMasksTakeNoMoreThanTheRest) {
  Add(std::nullopt);
  int num_begun = 0;
  for (int i = 0; i < 100; ++i) {
    for (; turns_.MayBegin(); ++num_begun) Add(absl::Milliseconds(30)).is_finished = true;
    scheduler_.RemoveFinished([](Sequence&) {});
    (void)Step(/*other_ms=*/10);
  }
  EXPECT_NEAR(num_begun * 30, 100 * 10, 40);
}

}  // namespace
}  // namespace foretoken::verifier
