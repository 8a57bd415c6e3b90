// SPDX-License-Identifier: Apache-2.0
// The messages of one request. If this test fails, a slow client loses or reorders text, tokens or completions, or a
// message is too large for its client.
#include "verifier_service/api/outbox.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;

SampleOutput Tokens(int32_t sample, std::string text, std::vector<int32_t> ids, std::vector<uint32_t> ends) {
  SampleOutput output;
  output.sample_index = sample;
  output.text = std::move(text);
  output.speculated.assign(ids.size(), sample == 1);
  output.token_ids = std::move(ids);
  output.text_ends = std::move(ends);
  return output;
}

SampleOutput Completed(int32_t sample, FinishReason reason) {
  SampleOutput output;
  output.sample_index = sample;
  output.completion = SampleCompletion{.finish_reason = reason};
  return output;
}

TEST(Outbox, MergesWaitingOutputIntoOneMessage) {
  Outbox outbox({.request_id = "r"});
  outbox.Add(Tokens(0, "ab", {1, 2}, {1, 2}));
  outbox.Add(Tokens(0, "cde", {3, 4}, {2, 5}));
  const v1::GenerateResponse message = *outbox.Take();
  EXPECT_EQ(message.request_id(), "r");
  EXPECT_EQ(message.text(), "abcde");
  EXPECT_THAT(message.token_ids(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(message.text_ends(), ElementsAre(1, 2, 2, 5));
  EXPECT_EQ(message.speculated_size(), 4);
  EXPECT_FALSE(outbox.Take());
}

TEST(Outbox, TextEndsCountFromTheSamplesBeginning) {
  Outbox outbox({.num_samples = 2});
  outbox.Add(Tokens(0, "ab", {1}, {2}));
  outbox.Add(Tokens(1, "xyz", {1}, {3}));
  outbox.Take();
  outbox.Take();
  outbox.Add(Tokens(0, "cde", {2, 3}, {2, 5}));
  EXPECT_THAT(outbox.Take()->text_ends(), ElementsAre(2, 5));
}

TEST(Outbox, MessagesStaySmallEnoughForEveryClient) {
  Outbox outbox({.request_id = "r"});
  const std::string text(100'000, 'x');
  for (uint32_t i = 1; i <= 50; ++i) outbox.Add(Tokens(0, text, {1}, {i * 100'000}));
  size_t num_bytes = 0;
  while (const std::optional<v1::GenerateResponse> message = outbox.Take()) {
    EXPECT_LE(message->ByteSizeLong(), 1 << 20);
    EXPECT_EQ(message->text_ends(0), num_bytes + 100'000);
    num_bytes += message->text().size();
  }
  EXPECT_EQ(num_bytes, 50 * text.size());
}

SampleOutput Reported(uint64_t step_idx, int32_t num_nodes) {
  SampleOutput output;
  StepReport report{.step = {.step_idx = step_idx}, .token_ids = {1}, .draws = true, .expected_tokens = 1.5f};
  for (int32_t node = 0; node < num_nodes; ++node) {
    report.tree.token_ids.push_back(node);
    report.tree.parents.push_back(node - 1);
    report.tree.planned.push_back(true);
  }
  output.steps.push_back(std::move(report));
  return output;
}

TEST(Outbox, ReportsOfStepsWaitBesideTheTokens) {
  Outbox outbox({.request_id = "r"});
  outbox.Add(Reported(1, 0));
  const v1::GenerateResponse alone = *outbox.Take();  // a prompt message holds nothing else
  EXPECT_EQ(alone.request_id(), "r");
  EXPECT_EQ(alone.steps(0).step(), 1);
  EXPECT_FALSE(alone.steps(0).has_tree());
  outbox.Add(Reported(2, 3));
  SampleOutput last = Reported(3, 1);
  last.completion = SampleCompletion{.finish_reason = FinishReason::kStop};
  outbox.Add(std::move(last));
  EXPECT_FALSE(outbox.Result());
  const v1::GenerateResponse both = *outbox.Take();
  ASSERT_EQ(both.steps_size(), 2);
  EXPECT_THAT(both.steps(0).tree().parents(), ElementsAre(-1, 0, 1));
  EXPECT_EQ(both.steps(0).expected_tokens(), 1.5f);
  EXPECT_EQ(both.steps(1).step(), 3);
  EXPECT_TRUE(both.has_completion());
  EXPECT_TRUE(outbox.Result());
}

TEST(Outbox, DropsTheOldestReportsOfASlowReaderAndCountsThem) {
  Outbox outbox({});
  const size_t report_bytes = [] {
    Outbox one({});
    one.Add(Reported(1000, 1024));
    return one.Take()->steps(0).ByteSizeLong();
  }();
  const uint64_t num_added = 3 * Outbox::kMaxReportBytes / report_bytes;
  for (uint64_t i = 0; i < num_added; ++i) outbox.Add(Reported(1000 + i, 1024));
  const v1::GenerateResponse message = *outbox.Take();
  EXPECT_LE(message.ByteSizeLong(), Outbox::kMaxReportBytes + 1024);
  EXPECT_GT(message.ByteSizeLong(), Outbox::kMaxReportBytes * 9 / 10);
  EXPECT_EQ(message.steps(message.steps_size() - 1).step(), 1000 + num_added - 1);
  EXPECT_EQ(message.steps(0).num_lost() + message.steps_size(), num_added);
  outbox.Add(Reported(9, 1));
  EXPECT_EQ(outbox.Take()->steps(0).num_lost(), 0);
}

TEST(Outbox, SamplesTakeTurns) {
  Outbox outbox({.num_samples = 2});
  outbox.Add(Tokens(0, "a", {1}, {1}));
  outbox.Add(Tokens(1, "b", {2}, {1}));
  EXPECT_EQ(outbox.Take()->sample_index(), 0);
  outbox.Add(Tokens(0, "c", {3}, {1}));
  EXPECT_EQ(outbox.Take()->sample_index(), 1);
  EXPECT_EQ(outbox.Take()->sample_index(), 0);
}

TEST(Outbox, ThePromptIsASeparateFirstMessage) {
  Outbox outbox({.num_samples = 1, .prompt_text = "hi"});
  SampleOutput output = Tokens(0, "a", {1}, {1});
  output.prompt = PromptEcho{.token_ids = std::make_shared<const std::vector<int32_t>>(std::vector<int32_t>{7, 8}),
                             .logprobs = {{.token = {8, -0.5f}, .top = {{9, -0.1f}}}}};
  outbox.Add(std::move(output));
  const v1::GenerateResponse prompt = *outbox.Take();
  EXPECT_EQ(prompt.prompt().text(), "hi");
  EXPECT_THAT(prompt.prompt().token_ids(), ElementsAre(7, 8));
  EXPECT_EQ(prompt.prompt().logprobs(0).top(0).token_id(), 9);
  EXPECT_EQ(prompt.token_ids_size(), 0);
  EXPECT_EQ(outbox.Take()->text(), "a");
}

kernels::RowLogprobs ManyLogprobs() {
  return {.token = {1 << 17, -0.5f}, .top = std::vector<kernels::TokenLogprob>(20, {1 << 17, -0.1f})};
}

TEST(Outbox, ALongPromptComesInPiecesThatAddUp) {
  constexpr int kNumTokens = 20'000;
  std::string text;
  // The character has three bytes, so that a piece may end inside it.
  for (int i = 0; i < 1'200'000; ++i) text += "\xe2\x82\xac";
  Outbox outbox({.num_samples = 2, .prompt_text = text});
  SampleOutput output;
  auto token_ids = std::make_shared<std::vector<int32_t>>();
  for (int i = 0; i < kNumTokens; ++i) token_ids->push_back((1 << 17) + i);
  output.prompt = PromptEcho{.token_ids = std::move(token_ids)};
  output.prompt->logprobs.assign(kNumTokens - 1, ManyLogprobs());
  outbox.Add(std::move(output));
  outbox.Add(Completed(1, FinishReason::kStop));
  v1::PromptOutput whole;
  int num_pieces = 0;
  for (bool more = true; more; ++num_pieces) {
    const v1::GenerateResponse piece = *outbox.Take();
    ASSERT_TRUE(piece.has_prompt());
    EXPECT_LE(piece.ByteSizeLong(), Outbox::kMaxDeltaBytes + 64);
    EXPECT_EQ(piece.prompt().text().size() % 3, 0) << "whole characters";
    EXPECT_EQ(piece.sample_index(), 0);
    const std::string so_far = whole.text() + piece.prompt().text();
    whole.MergeFrom(piece.prompt());
    whole.set_text(so_far);
    more = piece.prompt().awaiting_more();
  }
  EXPECT_GT(num_pieces, 8);
  EXPECT_EQ(whole.text(), text);
  ASSERT_EQ(whole.token_ids_size(), kNumTokens);
  EXPECT_EQ(whole.token_ids(kNumTokens - 1), (1u << 17) + kNumTokens - 1);
  EXPECT_EQ(whole.logprobs_size(), kNumTokens - 1);
  EXPECT_TRUE(outbox.Take()->has_completion());
}

// The largest possible step, together with other waiting output.
TEST(Outbox, EveryMessageIsBelowTheStatedBound) {
  constexpr size_t kStatedBound = size_t{2} << 20;
  Outbox outbox({.request_id = std::string(256, 'r'), .numerics_fingerprint = std::string(1024, 'f')});
  uint32_t num_text_bytes = 0;
  int num_tokens = 0;
  for (int step = 0; step < 8; ++step) {
    SampleOutput output = Reported(1000 + step, 1024);
    for (int i = 0; i < 1025; ++i, ++num_tokens) {
      output.token_ids.push_back(1 << 17);
      output.speculated.push_back(true);
      output.logprobs.push_back(ManyLogprobs());
      output.text += std::string(300, 'x');
      output.text_ends.push_back(num_text_bytes += 300);
    }
    if (step == 7) {
      output.completion = SampleCompletion{.matched_stop_string = std::string(256, 's')};
      output.completion->speculation.accepted_lengths.assign(1025, 1 << 20);
      output.completion->proposers.assign(32, {.proposer = std::string(256, 'p')});
    }
    outbox.Add(std::move(output));
  }
  std::string text;
  while (const std::optional<v1::GenerateResponse> message = outbox.Take()) {
    EXPECT_LT(message->ByteSizeLong(), kStatedBound);
    EXPECT_EQ(message->logprobs_size(), message->token_ids_size());
    num_tokens -= message->token_ids_size();
    text += message->text();
    if (message->text_ends_size() > 0) {
      EXPECT_EQ(message->text_ends(message->text_ends_size() - 1), text.size());
    }
  }
  EXPECT_EQ(num_tokens, 0);
  EXPECT_EQ(text.size(), num_text_bytes);
  EXPECT_TRUE(outbox.Result());
}

TEST(Outbox, TextThatNoTokenReleasedComesAfterTheTokens) {
  Outbox outbox({});
  outbox.Add(Tokens(0, "abc", {1}, {1}));
  const v1::GenerateResponse message = *outbox.Take();
  EXPECT_EQ(message.text(), "abc");
  EXPECT_THAT(message.text_ends(), ElementsAre(1));
}

TEST(Outbox, EndsAfterTheCompletionOfEverySampleIsTaken) {
  Outbox outbox({.num_samples = 2, .seed = 5, .numerics_fingerprint = "f"});
  outbox.Add(Completed(0, FinishReason::kLength));
  outbox.Take();
  EXPECT_FALSE(outbox.Result());
  SampleOutput last = Completed(1, FinishReason::kStop);
  last.completion->matched_stop_string = "x";
  last.completion->proposers = {{"ngram", 9, 4}};
  last.completion->speculation = {.accepted_lengths = {3, 0, 2},
                                  .num_proposed_nodes = 20,
                                  .num_verified_nodes = 9,
                                  .num_accepted_prediction_tokens = 6,
                                  .num_rejected_prediction_tokens = 7};
  last.completion->mode = SpeculationMode::kAlways;
  outbox.Add(std::move(last));
  EXPECT_FALSE(outbox.Result());
  const v1::Completion completion = outbox.Take()->completion();
  EXPECT_EQ(completion.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(completion.matched_stop_string(), "x");
  EXPECT_FALSE(completion.has_matched_stop_token_id());
  EXPECT_EQ(completion.usage().proposers(0).accepted_tokens(), 4);
  EXPECT_THAT(completion.usage().accepted_lengths(), ::testing::ElementsAre(3, 0, 2));
  EXPECT_EQ(completion.usage().proposed_nodes(), 20);
  EXPECT_EQ(completion.usage().verified_nodes(), 9);
  EXPECT_EQ(completion.usage().accepted_prediction_tokens(), 6);
  EXPECT_EQ(completion.usage().rejected_prediction_tokens(), 7);
  EXPECT_EQ(completion.usage().speculation_mode(), v1::SPECULATION_MODE_ALWAYS);
  EXPECT_EQ(completion.seed(), 5);
  EXPECT_EQ(completion.numerics_fingerprint(), "f");
  EXPECT_EQ(outbox.Result(), absl::OkStatus());
}

TEST(Outbox, AnErrorEndsTheRequestAfterTheEarlierOutput) {
  Outbox outbox({});
  outbox.Add(Tokens(0, "a", {1}, {1}));
  SampleOutput failed;
  failed.error = absl::InternalError("NaN");
  outbox.Add(std::move(failed));
  outbox.Add(Tokens(0, "late", {2}, {4}));
  EXPECT_FALSE(outbox.Result());
  EXPECT_EQ(outbox.Take()->text(), "a");
  EXPECT_EQ(outbox.Result(), absl::InternalError("NaN"));
}

}  // namespace
}  // namespace foretoken::verifier
