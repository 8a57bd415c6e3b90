// SPDX-License-Identifier: Apache-2.0
// Output in the messages of vLLM's contract. If this test fails, a gateway shows tokens twice or not at all, or counts
// them wrongly.
#include "verifier_service/vllm/answer_translation.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace foretoken::verifier {
namespace {

using google::protobuf::TextFormat;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::GenerateResponse Ours(const std::string& text) {
  v1::GenerateResponse response;
  EXPECT_TRUE(TextFormat::ParseFromString(text, &response)) << text;
  return response;
}

// The messages that this part gives.
std::vector<engine_api::GenerateResponse> Translate(AnswerTranslation& answers, const v1::GenerateResponse& response) {
  answers.Add(response);
  std::vector<engine_api::GenerateResponse> messages;
  while (std::optional<engine_api::GenerateResponse> message = answers.Take()) messages.push_back(*std::move(message));
  return messages;
}

MATCHER_P(Is, text, "") {
  engine_api::GenerateResponse expected;
  EXPECT_TRUE(TextFormat::ParseFromString(text, &expected)) << text;
  google::protobuf::util::MessageDifferencer differencer;
  std::string difference;
  differencer.ReportDifferencesToString(&difference);
  const bool is_same = differencer.Compare(expected, arg);
  *result_listener << difference;
  return is_same;
}

constexpr char kEndToken[] =
    "completion { finish_reason: FINISH_REASON_LENGTH usage { prompt_tokens: 5 cached_tokens: 2 completion_tokens: 3 "
    "steps: 2 accepted_lengths: [1, 1] verified_nodes: 4 } }";

TEST(AnswerTranslation, AStreamHasDeltasAndRepeatsTheLastOne) {
  AnswerTranslation answers({.streams = true, .num_prompt_tokens = 5});
  EXPECT_THAT(Translate(answers, Ours("token_ids: [1, 2]")),
              ElementsAre(Is("chunk { token_ids: [1, 2] prompt_tokens: 5 completion_tokens: 2 }")));
  EXPECT_THAT(Translate(answers, Ours("text: 'held back until now'")), IsEmpty());
  EXPECT_THAT(Translate(answers, Ours(std::string("token_ids: 3 ") + kEndToken)),
              ElementsAre(Is("chunk { token_ids: 3 prompt_tokens: 5 completion_tokens: 1 cached_tokens: 2 }"),
                          Is("complete { output_ids: 3 finish_reason: 'length' prompt_tokens: 5 completion_tokens: 1 "
                             "cached_tokens: 2 spec_accepted_tokens: 1 spec_draft_tokens: 4 }")));
  EXPECT_EQ(answers.num_held_bytes(), 0);
}

TEST(AnswerTranslation, WithoutAStreamTheSamplesComeInOrderOnceAllHaveEnded) {
  AnswerTranslation answers({.num_samples = 2, .num_prompt_tokens = 5});
  EXPECT_THAT(Translate(answers, Ours("token_ids: [1, 2]")), IsEmpty());
  EXPECT_GT(answers.num_held_bytes(), 0);
  EXPECT_THAT(Translate(answers, Ours(std::string("sample_index: 1 token_ids: 9 ") + kEndToken)), IsEmpty());
  EXPECT_THAT(Translate(answers, Ours(std::string("token_ids: 3 ") + kEndToken)),
              ElementsAre(Is("complete { output_ids: [1, 2, 3] finish_reason: 'length' prompt_tokens: 5 "
                             "completion_tokens: 3 cached_tokens: 2 spec_accepted_tokens: 1 spec_draft_tokens: 4 }"),
                          Is("complete { index: 1 output_ids: 9 finish_reason: 'length' prompt_tokens: 5 "
                             "completion_tokens: 1 cached_tokens: 2 spec_accepted_tokens: 1 spec_draft_tokens: 4 }")));
  EXPECT_EQ(answers.num_held_bytes(), 0);
}

TEST(AnswerTranslation, SaysWhyASampleEnded) {
  const std::pair<const char*, const char*> ends[] = {
      {"finish_reason: FINISH_REASON_STOP", "finish_reason: 'stop'"},
      {"finish_reason: FINISH_REASON_STOP matched_stop_token_id: 0", "finish_reason: 'stop' matched_token_id: 0"},
      {"finish_reason: FINISH_REASON_STOP matched_stop_string: 'x'", "finish_reason: 'stop' matched_stop_str: 'x'"},
      {"finish_reason: FINISH_REASON_ABORT", "finish_reason: 'abort'"},
      {"finish_reason: FINISH_REASON_SHUTDOWN", "finish_reason: 'abort'"},
  };
  for (const auto& [ours, theirs] : ends) {
    AnswerTranslation answers({});
    EXPECT_THAT(Translate(answers, Ours(absl::StrCat("completion { ", ours, " }"))),
                ElementsAre(Is(absl::StrCat("complete { ", theirs, " }"))));
  }
}

TEST(AnswerTranslation, AnEndOfTextTokenIsNoMatchedStop) {
  AnswerTranslation answers({.num_samples = 2, .end_token_ids = {3, 7}});
  answers.Add(Ours("completion { finish_reason: FINISH_REASON_STOP matched_stop_token_id: 7 }"));
  EXPECT_THAT(
      Translate(answers,
                Ours("sample_index: 1 completion { finish_reason: FINISH_REASON_STOP matched_stop_token_id: 8 }")),
      ElementsAre(Is("complete { finish_reason: 'stop' }"),
                  Is("complete { index: 1 finish_reason: 'stop' matched_token_id: 8 }")));
}

TEST(AnswerTranslation, CountsAcceptedGuesses) {
  AnswerTranslation answers({});
  // 2 steps with one accepted guess and 1 with three make 5. Rejection sampling verified fewer rows than that.
  EXPECT_THAT(Translate(answers, Ours("completion { usage { accepted_lengths: [4, 2, 0, 1] verified_nodes: 3 } }")),
              ElementsAre(Is("complete { finish_reason: 'abort' spec_accepted_tokens: 5 spec_draft_tokens: 5 }")));
}

constexpr char kLogprobs[] =
    "token_ids: [1, 2] "
    "logprobs { token { token_id: 1 logprob: -1 } top { token_id: 4 logprob: -0.5 } top { token_id: 1 logprob: -1 } } "
    "logprobs { token { token_id: 2 logprob: -2 } top { token_id: 2 logprob: -2 } top { token_id: 3 logprob: -3 } } ";
constexpr char kTheirLogprobs[] =
    "output_logprobs { token_ids: [1, 2] token_logprobs: [-1, -2] "
    "top_logprobs { token_ids: [4, 1] values: [-0.5, -1] } top_logprobs { token_ids: [2, 3] values: [-2, -3] } } ";

TEST(AnswerTranslation, LogprobsAreParallelArrays) {
  AnswerTranslation stream({.streams = true, .has_top_logprobs = true});
  EXPECT_THAT(Translate(stream, Ours(absl::StrCat(kLogprobs, "completion { }"))),
              ElementsAre(Is(absl::StrCat("chunk { token_ids: [1, 2] completion_tokens: 2 ", kTheirLogprobs, "}")),
                          Is(absl::StrCat("complete { output_ids: [1, 2] finish_reason: 'abort' completion_tokens: 2 ",
                                          kTheirLogprobs, "}"))));
  AnswerTranslation whole({.has_top_logprobs = false});
  EXPECT_THAT(Translate(whole, Ours(absl::StrCat(kLogprobs, "completion { }"))),
              ElementsAre(Is("complete { output_ids: [1, 2] finish_reason: 'abort' completion_tokens: 2 "
                             "output_logprobs { token_ids: [1, 2] token_logprobs: [-1, -2] } }")));
}

constexpr char kTheirPrompt[] =
    "input_logprobs { token_ids: [7, 8, 9] token_logprobs { } token_logprobs { value: -8 } token_logprobs { value: -9 }"
    " top_logprobs { } top_logprobs { token_ids: 3 values: -1 } top_logprobs { token_ids: 9 values: -9 } } ";

TEST(AnswerTranslation, ThePromptComesInPiecesAndGoesWithTheFirstMessageOfEachSample) {
  const auto feed = [](AnswerTranslation& answers) {
    EXPECT_THAT(Translate(answers, Ours("prompt { token_ids: [7, 8] awaiting_more: true logprobs { token { token_id: 8 "
                                        "logprob: -8 } top { token_id: 3 logprob: -1 } } }")),
                IsEmpty());
    EXPECT_THAT(Translate(answers, Ours("prompt { token_ids: 9 logprobs { token { token_id: 9 logprob: -9 } top { "
                                        "token_id: 9 logprob: -9 } } }")),
                IsEmpty());
    EXPECT_GT(answers.num_held_bytes(), 0);
  };
  AnswerTranslation stream({.streams = true, .num_samples = 2, .has_prompt_top_logprobs = true});
  feed(stream);
  EXPECT_THAT(Translate(stream, Ours("token_ids: 1")),
              ElementsAre(Is(absl::StrCat("chunk { token_ids: 1 completion_tokens: 1 ", kTheirPrompt, "}"))));
  EXPECT_THAT(Translate(stream, Ours("token_ids: 2 completion { }")),
              ElementsAre(Is("chunk { token_ids: 2 completion_tokens: 1 }"),
                          Is("complete { output_ids: 2 completion_tokens: 1 finish_reason: 'abort' }")));
  EXPECT_THAT(Translate(stream, Ours("sample_index: 1 token_ids: 3 completion { }")),
              ElementsAre(Is(absl::StrCat("chunk { index: 1 token_ids: 3 completion_tokens: 1 ", kTheirPrompt, "}")),
                          Is("complete { index: 1 output_ids: 3 completion_tokens: 1 finish_reason: 'abort' }")));
  EXPECT_EQ(stream.num_held_bytes(), 0);

  AnswerTranslation whole({.has_prompt_top_logprobs = true});
  feed(whole);
  EXPECT_THAT(Translate(whole, Ours("token_ids: 1 completion { }")),
              ElementsAre(Is(absl::StrCat("complete { output_ids: 1 completion_tokens: 1 finish_reason: 'abort' ",
                                          kTheirPrompt, "}"))));
  EXPECT_EQ(whole.num_held_bytes(), 0);
}

TEST(AnswerTranslation, OnlyWhatIsKeptCountsAsHeld) {
  AnswerTranslation whole({});
  v1::GenerateResponse response = Ours("token_ids: 1");
  response.set_request_id(std::string(256, 'r'));
  response.set_text(std::string(100, 't'));
  for (int i = 0; i < 10; ++i) whole.Add(response);
  EXPECT_GT(whole.num_held_bytes(), 0);
  EXPECT_LT(whole.num_held_bytes(), 100);
}

// Else a client that reads its stream would seem to leave it unread.
TEST(AnswerTranslation, ThePromptIsHeldUntilEverySampleHasHadIt) {
  AnswerTranslation answers({.streams = true, .num_samples = 2});
  answers.Add(Ours("prompt { token_ids: [7, 8] logprobs { token { token_id: 8 logprob: -8 } } }"));
  EXPECT_THAT(Translate(answers, Ours("token_ids: 1")), SizeIs(1));
  EXPECT_GT(answers.num_held_bytes(), 0);
  EXPECT_THAT(Translate(answers, Ours("sample_index: 1 token_ids: 1")), SizeIs(1));
  EXPECT_EQ(answers.num_held_bytes(), 0);
  EXPECT_THAT(Translate(answers, Ours("token_ids: 2 completion { }")), SizeIs(2));
}

// Gateways may ask for many samples of a long prompt. If every sample held a copy, one call could take all memory.
TEST(AnswerTranslation, ThePromptIsHeldOnceForAnyNumberOfSamples) {
  constexpr int kNumSamples = 64, kNumTokens = 1000;
  for (const bool streams : {false, true}) {
    AnswerTranslation answers({.streams = streams, .num_samples = kNumSamples, .has_prompt_top_logprobs = true});
    v1::GenerateResponse prompt;
    for (int i = 0; i < kNumTokens; ++i) {
      prompt.mutable_prompt()->add_token_ids(i);
      prompt.mutable_prompt()->add_logprobs()->add_top()->set_logprob(-1);
    }
    answers.Add(prompt);
    const size_t num_prompt_bytes = answers.num_held_bytes();
    EXPECT_GT(num_prompt_bytes, kNumTokens);
    int num_messages = 0;
    const auto take_all = [&] {
      while (const std::optional<engine_api::GenerateResponse> message = answers.Take()) {
        ++num_messages;
        const bool has_prompt = message->chunk().has_input_logprobs() || message->complete().has_input_logprobs();
        EXPECT_EQ(has_prompt, !streams || message->has_chunk());
        EXPECT_LE(answers.num_held_bytes(), num_prompt_bytes + kNumSamples * 100);
      }
    };
    for (int i = 0; i < kNumSamples; ++i) {
      answers.Add(Ours(absl::StrCat("sample_index: ", i, " token_ids: 1 completion { }")));
      // What waits to be taken is counted, and the prompt in it only once.
      EXPECT_LE(answers.num_held_bytes(), num_prompt_bytes + kNumSamples * 100);
      EXPECT_GE(answers.num_held_bytes(), num_prompt_bytes);
      take_all();
    }
    EXPECT_EQ(num_messages, streams ? 2 * kNumSamples : kNumSamples);
    EXPECT_EQ(answers.num_held_bytes(), 0);
  }
}

// The engine reports the prompt first. The translation does not depend on it.
TEST(AnswerTranslation, ASampleThatBeginsBeforeThePromptIsKnownGetsItLater) {
  AnswerTranslation stream({.streams = true, .num_samples = 2, .has_prompt_top_logprobs = true});
  EXPECT_THAT(Translate(stream, Ours("sample_index: 1 token_ids: 3")),
              ElementsAre(Is("chunk { index: 1 token_ids: 3 completion_tokens: 1 }")));
  Translate(stream, Ours("prompt { token_ids: [7, 8] awaiting_more: true logprobs { token { token_id: 8 "
                         "logprob: -8 } top { token_id: 3 logprob: -1 } } }"));
  EXPECT_THAT(Translate(stream, Ours("sample_index: 1 token_ids: 4")),
              ElementsAre(Is("chunk { index: 1 token_ids: 4 completion_tokens: 1 }")));
  Translate(stream, Ours("prompt { token_ids: 9 logprobs { token { token_id: 9 logprob: -9 } top { "
                         "token_id: 9 logprob: -9 } } }"));
  EXPECT_THAT(Translate(stream, Ours("sample_index: 1 token_ids: 5")),
              ElementsAre(Is(absl::StrCat("chunk { index: 1 token_ids: 5 completion_tokens: 1 ", kTheirPrompt, "}"))));
}

}  // namespace
}  // namespace foretoken::verifier
