// SPDX-License-Identifier: Apache-2.0
// Requests of vLLM's contract in our protocol. If this test fails, a gateway's request means something else here than
// at vLLM, or an option that this server does not have is ignored.
#include "verifier_service/vllm/request_translation.h"

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/rpc/parse_message.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace foretoken::verifier {
namespace {

using google::protobuf::TextFormat;
using google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ServedModel SmallModel() {
  ServedModel model;
  model.vocabulary_size = 300;
  model.max_context_tokens = 40;
  model.max_prompt_bytes = 1000;
  return model;
}

engine_api::GenerateRequest Theirs(const std::string& text) {
  engine_api::GenerateRequest request;
  EXPECT_TRUE(TextFormat::ParseFromString(text, &request)) << text;
  return request;
}

// A message without parts that say nothing, so that an empty part equals an absent one.
v1::GenerateRequest Expected(const std::string& text) {
  v1::GenerateRequest request;
  EXPECT_TRUE(TextFormat::ParseFromString(text, &request)) << text;
  return request;
}

// What a request says that leaves everything out but its prompt.
constexpr char kPromptIds[] = "tokenized { input_ids: [7, 8] }";
constexpr char kOurPrompt[] = "tokens { ids: [7, 8] }";
constexpr char kNeutral[] =
    "sampling { temperature: 1 top_p: 1 top_k: 0 min_p: 0 frequency_penalty: 0 presence_penalty: 0 "
    "repetition_penalty: 1 } stopping { min_tokens: 0 ignore_eos: false include_stop_string: false } "
    "output { skip_special_tokens: false }";

struct Same {
  const char* name;
  const char* theirs;  // beside the prompt
  const char* ours;    // beside the prompt; merged over the neutral request
};

class Translated : public ::testing::TestWithParam<Same> {};

TEST_P(Translated, MeansTheSame) {
  const auto ours = ToOurs(Theirs(absl::StrCat(kPromptIds, GetParam().theirs)), SmallModel());
  ASSERT_TRUE(ours.ok()) << ours.status();
  v1::GenerateRequest expected = Expected(absl::StrCat(kOurPrompt, kNeutral));
  expected.MergeFrom(Expected(GetParam().ours));
  std::string difference;
  MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&difference);
  EXPECT_TRUE(differencer.Compare(expected, *ours)) << difference;
}

INSTANTIATE_TEST_SUITE_P(
    EveryField, Translated,
    ::testing::Values(
        Same{"NothingButThePrompt", "", ""},  //
        Same{"EmptyParameters", "sampling_params { }", ""},
        Same{"TheId", "request_id: 'cmpl-1'", "request_id: 'cmpl-1'"},
        Same{"TemperatureZero", "sampling_params { temperature: 0 }", "sampling { temperature: 0 }"},
        Same{"Temperature", "sampling_params { temperature: 0.5 }", "sampling { temperature: 0.5 }"},
        Same{"TopP", "sampling_params { top_p: 0.9 }", "sampling { top_p: 0.9 }"},
        Same{"TopK", "sampling_params { top_k: 5 }", "sampling { top_k: 5 }"},
        Same{"TopKOfMinusOne", "sampling_params { top_k: 4294967295 }", ""},
        Same{"MinP", "sampling_params { min_p: 0.1 }", "sampling { min_p: 0.1 }"},
        Same{"Penalties", "sampling_params { frequency_penalty: 1 presence_penalty: -1 repetition_penalty: 1.5 }",
             "sampling { frequency_penalty: 1 presence_penalty: -1 repetition_penalty: 1.5 }"},
        Same{"Samples", "sampling_params { n: 3 }", "sampling { n: 3 }"},
        Same{"Seed", "sampling_params { seed: 7 }", "sampling { seed: 7 }"},
        Same{"SeedZero", "sampling_params { seed: 0 }", "sampling { seed: 0 }"},
        Same{"AnySeed", "sampling_params { seed: -1 }", ""},
        Same{"NegativeSeed", "sampling_params { seed: -2 }", "sampling { seed: 18446744073709551614 }"},
        Same{"Bias", "sampling_params { logit_bias { key: 7 value: -2 } }",
             "sampling { logit_bias { key: 7 value: -2 } }"},
        Same{"Lengths", "sampling_params { max_tokens: 9 min_tokens: 2 }", "stopping { max_tokens: 9 min_tokens: 2 }"},
        Same{"NoMaxTokensIsPassedOn", "sampling_params { max_tokens: 0 }", "stopping { max_tokens: 0 }"},
        Same{"Stops", "sampling_params { stop: ['a', 'b'] stop_token_ids: [3, 4] include_stop_str_in_output: true }",
             "stopping { stop_strings: ['a', 'b'] stop_token_ids: [3, 4] include_stop_string: true }"},
        Same{"IgnoredEnd", "sampling_params { ignore_eos: true }", "stopping { ignore_eos: true }"},
        Same{"SkippedSpecialTokens", "sampling_params { skip_special_tokens: true }",
             "output { skip_special_tokens: true }"},
        Same{"Logprobs", "sampling_params { logprobs: 3 prompt_logprobs: 0 }",
             "output { logprobs: 3 prompt_logprobs: 0 }"},
        Same{"Truncation", "sampling_params { truncate_prompt_tokens: 5 }", "truncate_prompt_tokens: 5"},
        Same{"TruncationToTheContext", "sampling_params { truncate_prompt_tokens: -1 }", "truncate_prompt_tokens: 39"},
        Same{"JsonSchema", "sampling_params { json_schema: '{}' }", "response_format { json_schema: '{}' }"},
        Same{"Regex", "sampling_params { regex: 'a+' }", "response_format { regex: 'a+' }"},
        Same{"Grammar", "sampling_params { grammar: 'root ::= \"a\"' }", "response_format { ebnf: 'root ::= \"a\"' }"},
        Same{"StructuralTag", "sampling_params { structural_tag: '{}' }", "response_format { structural_tag: '{}' }"},
        Same{
            "OldStructuralTag",
            R"(sampling_params { structural_tag: '{"type": "structural_tag", "structures": [{"begin": "<f>",)"
            R"("schema": {"b": 1, "a": 2}, "end": "</f>"}], "triggers": ["<"]}' })",
            R"(response_format { structural_tag: '{"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<"],)"
            R"("tags":[{"begin":"<f>","content":{"type":"json_schema","json_schema":{"b":1,"a":2}},"end":"</f>"}]}}' })"},
        Same{"OldStructuralTagWithoutASchema",
             R"(sampling_params { structural_tag: '{"structures":[{"begin":"<f>","end":""}],"triggers":["<"]}' })",
             R"(response_format { structural_tag: '{"structures":[{"begin":"<f>","end":""}],"triggers":["<"]}' })"},
        Same{"JsonObject", "sampling_params { json_object: true }",
             R"(response_format { json_schema: "{\"type\":\"object\"}" })"},
        Same{"NoJsonObject", "sampling_params { json_object: false }", ""},
        Same{"Choice", "sampling_params { choice { choices: ['yes', 'no'] } }",
             "response_format { choices { texts: ['yes', 'no'] } }"},
        Same{"EmptyConstraint", "sampling_params { regex: '' }", "response_format { regex: '' }"},
        Same{"WhatOnlyTextCouldShow",
             "sampling_params { spaces_between_special_tokens: true grammar_from_first_token: true }", ""},
        Same{"TheOnlyRank", "data_parallel_rank: 0", ""}),
    [](const auto& info) { return info.param.name; });

TEST(ToOurs, ReadsTextAsVllmDoes) {
  const auto ours = ToOurs(Theirs("text: '<|endoftext|>x'"), SmallModel());
  ASSERT_TRUE(ours.ok()) << ours.status();
  EXPECT_EQ(ours->text(), "<|endoftext|>x");
  EXPECT_TRUE(ours->parse_special_tokens()) << "the spelling of a special token is that token";
  EXPECT_FALSE(ours->has_add_special_tokens()) << "the tokenizer's own setting";
}

struct Refused {
  const char* name;
  const char* theirs;
  const char* message;  // the beginning of the error
};

class RefusedTranslation : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedTranslation, NamesTheField) {
  const auto ours = ToOurs(Theirs(GetParam().theirs), SmallModel());
  EXPECT_EQ(ours.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ours.status().message()), StartsWith(GetParam().message));
  EXPECT_THAT(GetParam().message, StartsWith(base::FieldOf(ours.status())));
}

INSTANTIATE_TEST_SUITE_P(
    EveryRule, RefusedTranslation,
    ::testing::Values(
        Refused{"NoPrompt", "", "input: expected tokenized or text, got none"},
        Refused{"Pictures", "text: 'x' mm_inputs: ''", "mm_inputs: expected none"},
        Refused{"MorePictures", "text: 'x' extra_mm_inputs: ''", "extra_mm_inputs: expected none"},
        Refused{"References", "text: 'x' media_refs: 'x'", "media_refs: expected none"},
        Refused{"RemotePrompt", "text: 'x' kv_transfer_params: ''", "kv_transfer_params: expected none"},
        Refused{"RemotePromptAsJson", "text: 'x' kv_transfer_params_json: '{}'",
                "kv_transfer_params_json: expected none"},
        Refused{"AnotherRank", "text: 'x' data_parallel_rank: 1", "data_parallel_rank: expected 0, because "},
        Refused{"NegativeRank", "text: 'x' data_parallel_rank: -1", "data_parallel_rank: expected 0, because "},
        Refused{"AllLogprobs", "text: 'x' sampling_params { logprobs: -1 }", "sampling_params.logprobs: expected "},
        Refused{"AllPromptLogprobs", "text: 'x' sampling_params { prompt_logprobs: -1 }",
                "sampling_params.prompt_logprobs: expected "},
        Refused{"NegativeBiasId", "text: 'x' sampling_params { logit_bias { key: -3 value: 1 } }",
                "sampling_params.logit_bias[-3]: expected the id of a token, got -3"},
        Refused{"TruncationToNothing", "text: 'x' sampling_params { truncate_prompt_tokens: 0 }",
                "sampling_params.truncate_prompt_tokens: expected at least 1, or -1, got 0"},
        Refused{"NegativeTruncation", "text: 'x' sampling_params { truncate_prompt_tokens: -2 }",
                "sampling_params.truncate_prompt_tokens: expected at least 1, or -1, got -2"}),
    [](const auto& info) { return info.param.name; });

TEST(InTheirWords, RenamesFields) {
  const std::pair<const char*, const char*> names[] = {
      {"tokens.ids[3]", "tokenized.input_ids[3]"},
      {"text", "text"},
      {"truncate_prompt_tokens", "sampling_params.truncate_prompt_tokens"},
      {"sampling.logit_bias[7]", "sampling_params.logit_bias[7]"},
      {"stopping.stop_strings[1]", "sampling_params.stop[1]"},
      {"stopping.max_tokens", "sampling_params.max_tokens"},
      {"stopping.include_stop_string", "sampling_params.include_stop_str_in_output"},
      {"output.logprobs", "sampling_params.logprobs"},
      {"response_format.ebnf", "sampling_params.grammar"},
      {"response_format.json_schema", "sampling_params.json_schema"},
      {"response_format.choices.texts[0]", "sampling_params.choice.choices[0]"},
      {"response_format.choices", "sampling_params.choice"},
      {"response_format", "sampling_params.constraint"},
      {"priority", "priority"},
  };
  for (const auto& [ours, theirs] : names) {
    const absl::Status renamed = InTheirWords(rpc::InvalidField(ours, "expected 1, got 2"));
    EXPECT_EQ(renamed.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(renamed.message(), absl::StrCat(theirs, ": expected 1, got 2"));
    EXPECT_EQ(base::FieldOf(renamed), theirs);
  }
  EXPECT_EQ(InTheirWords(rpc::InvalidField("stopping.min_tokens", "expected at most stopping.max_tokens, 8, got 9"))
                .message(),
            "sampling_params.min_tokens: expected at most sampling_params.max_tokens, 8, got 9");
  const absl::Status other = absl::NotFoundError("model: expected \"demo\"");
  EXPECT_EQ(InTheirWords(other), other);
  const absl::Status no_token = InTheirWords(base::WithField(absl::InvalidArgumentError("sampling: none"), "sampling"));
  EXPECT_EQ(no_token.message(), "sampling_params: none");
  const absl::Status costly = InTheirWords(base::Confidential(
      base::WithReason(rpc::InvalidField("response_format.regex", "too large"), "FORMAT_TOO_COSTLY")));
  EXPECT_EQ(base::FieldOf(costly), "sampling_params.regex");
  EXPECT_TRUE(base::IsConfidential(costly));
  EXPECT_EQ(base::ReasonOf(costly), "FORMAT_TOO_COSTLY");
}

std::string RepeatedText(int count, const std::string& field) {
  std::string text;
  for (int i = 0; i < count; ++i) text += field;
  return text;
}

struct MessageBound {
  const char* name;
  std::function<std::string(int n)> make;  // text format with n elements or bytes
  int most;
  const char* message;  // the beginning of the error for one more
};

class EngineApiBound : public ::testing::TestWithParam<MessageBound> {};

TEST_P(EngineApiBound, IsKept) {
  const EngineApiBounds bounds(SmallModel());
  const auto check = [&](int n) { return bounds.generate.Check(Theirs(GetParam().make(n)).SerializeAsString()); };
  EXPECT_EQ(check(GetParam().most), absl::OkStatus());
  EXPECT_THAT(std::string(check(GetParam().most + 1).message()), StartsWith(GetParam().message));
}

std::string Quoted(int n) { return absl::StrCat("'", std::string(static_cast<size_t>(n), 'x'), "'"); }

INSTANTIATE_TEST_SUITE_P(
    EveryField, EngineApiBound,
    ::testing::Values(
        MessageBound{"Id", [](int n) { return "request_id: " + Quoted(n); }, 256,
                     "request_id: expected at most 256 bytes"},
        MessageBound{"Ids", [](int n) { return "tokenized { " + RepeatedText(n, "input_ids: 1 ") + "}"; }, 1000,
                     "tokenized.input_ids: expected at most 1000, got 1001"},
        MessageBound{"Text", [](int n) { return "text: " + Quoted(n); }, 1000, "text: expected at most 1000 bytes"},
        MessageBound{"Stops", [](int n) { return "sampling_params { " + RepeatedText(n, "stop: 'x' ") + "}"; }, 16,
                     "sampling_params.stop: expected at most 16, got 17"},
        MessageBound{"StopIds",
                     [](int n) { return "sampling_params { " + RepeatedText(n, "stop_token_ids: 1 ") + "}"; }, 300,
                     "sampling_params.stop_token_ids: expected at most 300"},
        MessageBound{"Schema", [](int n) { return "sampling_params { json_schema: " + Quoted(n) + " }"; }, 1 << 20,
                     "sampling_params.json_schema: expected at most 1048576 bytes"},
        MessageBound{"Choices",
                     [](int n) { return "sampling_params { choice { " + RepeatedText(n, "choices: 'x' ") + "} }"; },
                     4096, "sampling_params.choice.choices: expected at most 4096"}),
    [](const auto& info) { return info.param.name; });

TEST(EngineApiBounds, KnowTheNewerFieldsOfAGatewayUpToABound) {
  const EngineApiBounds bounds(SmallModel());
  const std::string known = Theirs(kPromptIds).SerializeAsString();
  const std::string tag = "\xfa\x07";  // field 127, bytes
  const auto with_unknown = [&](size_t num_bytes) {
    std::string length;
    for (size_t rest = num_bytes; rest > 0; rest >>= 7) {
      length.push_back(static_cast<char>((rest & 0x7F) | (rest > 0x7F ? 0x80 : 0)));
    }
    return known + tag + length + std::string(num_bytes, 'x');
  };
  EXPECT_EQ(bounds.generate.Check(with_unknown(60'000)), absl::OkStatus());
  EXPECT_THAT(std::string(bounds.generate.Check(with_unknown(70'000)).message()), HasSubstr("unknown fields"));
}

}  // namespace
}  // namespace foretoken::verifier
