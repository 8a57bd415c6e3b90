// SPDX-License-Identifier: Apache-2.0
// The check of every request field. If this test fails, the server ignores or misreads an option, refuses a valid
// request, or accepts a request that breaks the engine.
#include "verifier_service/api/request_conversion.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"

namespace foretoken::verifier {
namespace {

constexpr uint64_t kDrawn = 0x1234;

const tokenizer::Tokenizer& DemoTokenizer() {
  static const auto* const tokenizer =
      new tokenizer::Tokenizer(*tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/target")));
  return *tokenizer;
}

ServedModel DemoModel() {
  ServedModel model;
  model.name = "demo";
  model.tokenizer = &DemoTokenizer();
  model.vocabulary_size = 4096;
  model.max_context_tokens = 32;
  model.end_token_ids = {4092};
  model.numerics_fingerprint = "these bits";
  model.default_sampling = {.temperature = 0.8f, .top_p = 0.95f};
  model.proposers = {"ngram", "suffix"};
  return model;
}

v1::GenerateRequest Parse(const std::string& text) {
  v1::GenerateRequest request;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &request)) << text;
  return request;
}

absl::StatusOr<GenerationRequest> Convert(const v1::GenerateRequest& request) {
  return ConvertRequest(request, DemoModel(), [] { return kDrawn; });
}

struct BadRequest {
  const char* name;
  const char* fields;   // in text format; a valid prompt is added if there is none
  const char* message;  // the beginning of the expected error
};

class RefusedRequest : public ::testing::TestWithParam<BadRequest> {};

TEST_P(RefusedRequest, NamesTheField) {
  std::string text = GetParam().fields;
  if (!absl::StrContains(text, "text:") && !absl::StrContains(text, "tokens {")) text += " tokens { ids: [1, 2, 3] }";
  const absl::StatusOr<GenerationRequest> converted = Convert(Parse(text));
  EXPECT_EQ(converted.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StartsWith(converted.status().message(), GetParam().message)) << converted.status();
}

INSTANTIATE_TEST_SUITE_P(
    EveryRule, RefusedRequest,
    ::testing::Values(
        BadRequest{"HighPriority", "priority: 101", "priority: expected -100 to 100, got 101"},
        BadRequest{"LowPriority", "priority: -101", "priority: expected -100 to 100, got -101"},
        BadRequest{"EmptyText", "text: ''", "text: "},  //
        BadRequest{"EmptyTokens", "tokens { }", "tokens.ids: "},
        BadRequest{"TokenOutsideTheVocabulary", "tokens { ids: [1, 5000] }", "tokens.ids[1]: "},
        BadRequest{"HugeToken", "tokens { ids: [4294967295] }", "tokens.ids[0]: "},
        BadRequest{"PromptThatFillsTheContext",
                   "tokens { ids: [1,1,1,1,1,1,1,1, 1,1,1,1,1,1,1,1, 1,1,1,1,1,1,1,1, 1,1,1,1,1,1,1,1] }",
                   "tokens.ids: expected a prompt of at most 31 tokens"},
        BadRequest{"TruncationToNothing", "truncate_prompt_tokens: 0", "truncate_prompt_tokens: "},
        BadRequest{"NanTemperature", "sampling { temperature: nan }", "sampling.temperature: "},
        BadRequest{"NegativeTemperature", "sampling { temperature: -0.1 }", "sampling.temperature: "},
        BadRequest{"LargeTemperature", "sampling { temperature: 101 }",
                   "sampling.temperature: expected 0 to 100, got 101"},
        BadRequest{"InfiniteTemperature", "sampling { temperature: inf }", "sampling.temperature: "},
        BadRequest{"ZeroTopP", "sampling { top_p: 0 }", "sampling.top_p: "},
        BadRequest{"LargeTopP", "sampling { top_p: 1.5 }", "sampling.top_p: "},
        BadRequest{"NanTopP", "sampling { top_p: nan }", "sampling.top_p: "},
        BadRequest{"NegativeMinP", "sampling { min_p: -1 }", "sampling.min_p: "},
        BadRequest{"LargeMinP", "sampling { min_p: 2 }", "sampling.min_p: "},
        BadRequest{"ZeroRepetitionPenalty", "sampling { repetition_penalty: 0 }", "sampling.repetition_penalty: "},
        BadRequest{"TinyRepetitionPenalty", "sampling { repetition_penalty: 1e-44 }",
                   "sampling.repetition_penalty: expected 0.01 to 100, got "},
        BadRequest{"LargeRepetitionPenalty", "sampling { repetition_penalty: 101 }", "sampling.repetition_penalty: "},
        BadRequest{"InfiniteRepetitionPenalty", "sampling { repetition_penalty: inf }",
                   "sampling.repetition_penalty: "},
        BadRequest{"LargePresencePenalty", "sampling { presence_penalty: 2.5 }", "sampling.presence_penalty: "},
        BadRequest{"NanFrequencyPenalty", "sampling { frequency_penalty: nan }", "sampling.frequency_penalty: "},
        BadRequest{"NanBias", "sampling { logit_bias { key: 7 value: nan } }", "sampling.logit_bias[7]: "},
        BadRequest{"LargeBias", "sampling { logit_bias { key: 7 value: 3e38 } }",
                   "sampling.logit_bias[7]: expected -10000 to 10000, got 3e+38"},
        BadRequest{"BiasOutsideTheVocabulary", "sampling { logit_bias { key: 70000 value: 1 } }",
                   "sampling.logit_bias[70000]: "},
        BadRequest{"AllowedIdOutsideTheVocabulary", "sampling { allowed_token_ids: [1, 4096] }",
                   "sampling.allowed_token_ids[1]: "},
        BadRequest{"BannedIdOutsideTheVocabulary", "sampling { banned_token_ids: [4294967295] }",
                   "sampling.banned_token_ids[0]: "},
        BadRequest{"AMaskThatAllowsNothing", "sampling { allowed_token_ids: [3, 5] banned_token_ids: [5, 4, 3, 3] }",
                   "sampling.allowed_token_ids: expected an id that sampling.banned_token_ids leaves, got none"},
        BadRequest{"MinTokensWhereOnlyStopTokensAreAllowed",
                   "sampling { allowed_token_ids: [3, 5] } stopping { min_tokens: 1 stop_token_ids: [5, 3] }",
                   "stopping.min_tokens: "},
        BadRequest{"MinTokensWhereOnlyTheEndIsAllowed",
                   "sampling { allowed_token_ids: [7, 4092] banned_token_ids: 7 } stopping { min_tokens: 2 }",
                   "stopping.min_tokens: expected 0, because every token that can be drawn ends the output; got 2"},
        BadRequest{"PredictedIdOutsideTheVocabulary", "text: 'x' speculation { prediction_tokens { ids: [1, 4096] } }",
                   "speculation.prediction_tokens.ids[1]: "},
        BadRequest{"APredictionsNameWithoutOne", "speculation { proposers: 'prediction' }",
                   "speculation.proposers[0]: "},
        BadRequest{"NoSamples", "sampling { n: 0 }", "sampling.n: "},
        BadRequest{"TooManySamples", "sampling { n: 65 }", "sampling.n: "},
        BadRequest{"NoTokens", "stopping { max_tokens: 0 }", "stopping.max_tokens: "},
        BadRequest{"MoreMinThanMaxTokens", "stopping { max_tokens: 2 min_tokens: 3 }", "stopping.min_tokens: "},
        BadRequest{"EmptyStopString", "stopping { stop_strings: ['a', ''] }", "stopping.stop_strings[1]: "},
        BadRequest{"StopTokenOutsideTheVocabulary", "stopping { stop_token_ids: [4096] }",
                   "stopping.stop_token_ids[0]: "},
        BadRequest{"TooManyLogprobs", "output { logprobs: 21 }", "output.logprobs: "},
        BadRequest{"TooManyPromptLogprobs", "output { prompt_logprobs: 21 }", "output.prompt_logprobs: "},
        BadRequest{"UnknownProposer", "speculation { proposers: ['ngram', 'oracle'] }", "speculation.proposers[1]: "},
        BadRequest{"TooManyTreeNodes", "speculation { max_tree_nodes: 1025 }", "speculation.max_tree_nodes: "}),
    [](const auto& info) { return info.param.name; });

TEST(ConvertRequest, RefusesARequestWithoutAPrompt) {
  EXPECT_TRUE(absl::StartsWith(Convert(v1::GenerateRequest()).status().message(), "prompt: "));
}

TEST(ConvertRequest, KnowsWhichResponseFormatsGiveJson) {
  const auto is_json = [](const std::string& fields) { return Convert(Parse("text: 'a' " + fields))->is_json; };
  EXPECT_TRUE(is_json("response_format { json_schema: '{}' }"));
  EXPECT_TRUE(is_json("response_format { any_json: true }"));
  EXPECT_FALSE(is_json("response_format { regex: '[0-9]+' }"));
  EXPECT_FALSE(is_json("response_format { choices { texts: 'yes' } }"));
  EXPECT_FALSE(is_json(""));
}

TEST(ConvertRequest, GivesTheCoinsOfRejectionSamplingANonce) {
  const auto nonce = [](const std::string& fields) {
    const absl::StatusOr<GenerationRequest> request =
        Convert(Parse("tokens { ids: 1 } sampling { seed: 5 } " + fields));
    EXPECT_EQ(request->sampling.seed, 5);
    return request->sampling.coin_nonce;
  };
  EXPECT_EQ(nonce("verification: VERIFICATION_RULE_REJECTION_SAMPLING"), kDrawn);
  EXPECT_EQ(nonce(""), 0);
}

TEST(ConvertRequest, TakesEitherVerificationRuleAndTheKeyedDrawByDefault) {
  EXPECT_EQ(Convert(Parse("tokens { ids: 1 }"))->verification, kernels::VerificationRule::kKeyedDraw);
  EXPECT_EQ(Convert(Parse("tokens { ids: 1 } verification: VERIFICATION_RULE_KEYED_DRAW"))->verification,
            kernels::VerificationRule::kKeyedDraw);
  EXPECT_EQ(Convert(Parse("tokens { ids: 1 } verification: VERIFICATION_RULE_REJECTION_SAMPLING"))->verification,
            kernels::VerificationRule::kRejectionSampling);
}

TEST(ConvertRequest, RefusesUnknownEnumValues) {
  v1::GenerateRequest request = Parse("tokens { ids: 1 }");
  request.set_verification(static_cast<v1::VerificationRule>(9));
  EXPECT_TRUE(absl::StartsWith(Convert(request).status().message(), "verification: "));
  request = Parse("tokens { ids: 1 }");
  request.mutable_speculation()->set_mode(static_cast<v1::SpeculationMode>(9));
  EXPECT_TRUE(absl::StartsWith(Convert(request).status().message(), "speculation.mode: "));
}

// An error that repeats long input would not fit the trailers.
TEST(ConvertRequest, ErrorsShowOnlyTheBeginningOfInput) {
  v1::GenerateRequest request = Parse("tokens { ids: 1 }");
  request.set_expected_numerics_fingerprint(std::string(1024, '\n'));
  EXPECT_LT(Convert(request).status().message().size(), 512);
  request = Parse("tokens { ids: 1 }");
  request.set_model(std::string(256, '\n'));
  EXPECT_LT(Convert(request).status().message().size(), 512);
  request = Parse("tokens { ids: 1 }");
  request.mutable_speculation()->add_proposers(std::string(256, '\n'));
  EXPECT_LT(Convert(request).status().message().size(), 512);
}

TEST(ConvertRequest, RefusesAListOfAllOfTheVocabulary) {
  v1::GenerateRequest request = Parse("tokens { ids: 1 }");
  for (int32_t id = 0; id < 4096; ++id) {
    if (DemoTokenizer().vocabulary().Find(id) != nullptr) {
      request.mutable_sampling()->add_banned_token_ids(static_cast<uint32_t>(id));
    }
  }
  EXPECT_TRUE(absl::StartsWith(Convert(request).status().message(), "sampling.banned_token_ids: expected to leave"));
  request.mutable_sampling()->mutable_banned_token_ids()->Set(9, 2);
  EXPECT_TRUE(Convert(request).ok());  // id 9 remains
}

TEST(ConvertRequest, ListsThatLeaveSomethingMayOverlap) {
  const GenerationRequest request = *Convert(Parse(
      "tokens { ids: 1 } stopping { min_tokens: 1 stop_token_ids: 9 } "
      "sampling { allowed_token_ids: [9, 3, 9, 4092] banned_token_ids: [5, 4092] logit_bias { key: 8 value: 1 } }"));
  EXPECT_EQ(request.allowed_token_ids, (std::vector<int32_t>{3, 9, 4092}));
  EXPECT_EQ(request.banned_token_ids, (std::vector<int32_t>{5, 4092}));
  // Only tokens that end the output remain: valid without min_tokens, or if the end-of-text token is ignored.
  EXPECT_TRUE(Convert(Parse("tokens { ids: 1 } sampling { allowed_token_ids: 4092 }")).ok());
  EXPECT_TRUE(Convert(Parse("tokens { ids: 1 } sampling { allowed_token_ids: 4092 } "
                            "stopping { min_tokens: 3 ignore_eos: true }"))
                  .ok());
}

TEST(ConvertRequest, ExpectsTheServersNumericsFingerprintWhereAsked) {
  EXPECT_TRUE(Convert(Parse("tokens { ids: 1 } expected_numerics_fingerprint: 'these bits'")).ok());
  const absl::Status status = Convert(Parse("tokens { ids: 1 } expected_numerics_fingerprint: 'other bits'")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "expected_numerics_fingerprint: the request expects \"other bits\", this server has \"these bits\"");
}

TEST(ConvertRequest, APredictionIsTokenizedAlone) {
  const auto predicted = [](const std::string& fields) {
    const GenerationRequest request = *Convert(Parse(fields));
    const std::span<const int32_t> token_ids = request.speculation.prediction.token_ids();
    return std::vector<int32_t>(token_ids.begin(), token_ids.end());
  };
  const auto encoded = [](const std::string& text, bool parse_special) {
    return DemoTokenizer().Encode(text, {.add_special_tokens = false, .parse_special = parse_special}).value();
  };
  EXPECT_EQ(predicted("text: 'import os' add_special_tokens: true speculation { prediction_text: ' as o' }"),
            encoded(" as o", false));
  const std::string special = DemoTokenizer().vocabulary().Find(4092)->spelling;
  const std::string request = absl::StrCat("text: 'x' speculation { prediction_text: '", special, "' } ");
  EXPECT_EQ(predicted(request), encoded(special, false));
  EXPECT_EQ(predicted(request + "parse_special_tokens: true"), std::vector<int32_t>{4092});
  EXPECT_EQ(predicted("text: 'x' speculation { prediction_tokens { ids: [7, 4092, 9] } }"),
            (std::vector<int32_t>{7, 4092, 9}));
  EXPECT_EQ(Convert(Parse("text: 'x' speculation { proposers: 'prediction' prediction_text: 'x' }"))
                ->speculation.proposers.size(),
            1);
}

TEST(ConvertRequest, APredictionMayBeEmptyAndIsFollowedAsFarAsAContextGoes) {
  for (const char* empty : {"", "speculation { prediction_text: '' }", "speculation { prediction_tokens { } }"}) {
    const absl::StatusOr<GenerationRequest> request = Convert(Parse(absl::StrCat("text: 'x' ", empty)));
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_TRUE(request->speculation.prediction.empty()) << empty;
  }
  v1::GenerateRequest request = Parse("text: 'x'");
  request.mutable_speculation()->mutable_prediction_tokens()->mutable_ids()->Resize(100, 7);
  const Prediction prediction = Convert(request)->speculation.prediction;
  EXPECT_EQ(prediction.token_ids().size(), 32);
  EXPECT_EQ(prediction.num_tokens(), 100);
}

TEST(ConvertRequest, DoesNotFindAnotherModel) {
  EXPECT_EQ(Convert(Parse("model: 'other' tokens { ids: 1 }")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Convert(Parse("model: 'demo' tokens { ids: 1 }")).ok());
}

TEST(ConvertRequest, UnsetFieldsTakeTheModelsDefaults) {
  const GenerationRequest request = *Convert(Parse("tokens { ids: [1, 2] }"));
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.8f);
  EXPECT_FLOAT_EQ(request.sampling.top_p, 0.95f);
  EXPECT_EQ(request.sampling.seed, kDrawn);
  EXPECT_FALSE(request.has_clients_seed);
  EXPECT_EQ(request.request_id, "00000000000012340000000000001234");
  EXPECT_EQ(request.stop.max_tokens, 30);
  EXPECT_EQ(request.num_samples, 1);
  EXPECT_EQ(request.speculation.mode, SpeculationMode::kAuto);
  EXPECT_TRUE(request.output.skip_special_tokens);
  EXPECT_FALSE(request.output.num_logprobs);
}

TEST(ConvertRequest, ZeroIsNotUnset) {
  const GenerationRequest request =
      *Convert(Parse("tokens { ids: 1 } sampling { temperature: 0 seed: 0 } output { logprobs: 0 } "
                     "speculation { max_tree_nodes: 0 }"));
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.sampling.seed, 0);
  EXPECT_TRUE(request.has_clients_seed);
  EXPECT_EQ(request.output.num_logprobs, 0);
  EXPECT_EQ(request.speculation.max_tree_nodes, 0);
}

TEST(ConvertRequest, CutsMaxTokensToTheRestOfTheContext) {
  const GenerationRequest request =
      *Convert(Parse("tokens { ids: [1, 2] } stopping { max_tokens: 4000000000 min_tokens: 3000000000 }"));
  EXPECT_EQ(request.stop.max_tokens, 30);
  EXPECT_EQ(request.stop.min_tokens, std::numeric_limits<int32_t>::max()) << "nothing ends it before";
}

TEST(ConvertRequest, KeepsTheLastTokensOfATruncatedPrompt) {
  EXPECT_EQ(Convert(Parse("tokens { ids: [1, 2, 3] } truncate_prompt_tokens: 2"))->prompt,
            (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(Convert(Parse("tokens { ids: [1, 2, 3] } truncate_prompt_tokens: 9"))->prompt.size(), 3);
}

TEST(ConvertRequest, SpecialTokensInTextAreTextUnlessAsked) {
  const std::string spelling = DemoTokenizer().vocabulary().Find(4092)->spelling;
  v1::GenerateRequest request;
  request.set_text(spelling);
  EXPECT_GT(Convert(request)->prompt.size(), 1);
  request.set_parse_special_tokens(true);
  EXPECT_EQ(Convert(request)->prompt, (std::vector<int32_t>{4092}));
}

TEST(ConvertRequest, CarriesTheIdTheTenantAndThePriorityOver) {
  const GenerationRequest request = *Convert(Parse("request_id: 'r' tenant: 't' priority: -3 tokens { ids: 1 }"));
  EXPECT_EQ(request.request_id, "r");
  EXPECT_EQ(request.tenant, "t");
  EXPECT_EQ(request.priority, -3);
}

TEST(ConvertRequest, CarriesSamplingOptionsOver) {
  const GenerationRequest request = *Convert(Parse(R"pb(
    tokens { ids: 1 }
    sampling { min_p: 0.1 repetition_penalty: 1.1 presence_penalty: -2 frequency_penalty: 2 n: 3 })pb"));
  EXPECT_FLOAT_EQ(request.sampling.min_p, 0.1f);
  EXPECT_FLOAT_EQ(request.sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(request.sampling.presence_penalty, -2);
  EXPECT_EQ(request.sampling.frequency_penalty, 2);
  EXPECT_EQ(request.num_samples, 3);
}

TEST(ConvertRequest, CutsTopKToTheVocabulary) {
  EXPECT_EQ(Convert(Parse("tokens { ids: 1 } sampling { top_k: 4000000000 }"))->sampling.top_k, 4096);
}

TEST(ConvertRequest, SortsBiasesById) {
  const GenerationRequest request =
      *Convert(Parse("tokens { ids: 1 } sampling { logit_bias { key: 9 value: -1 } logit_bias { key: 2 value: 1 } }"));
  ASSERT_EQ(request.logit_bias.size(), 2);
  EXPECT_EQ(request.logit_bias[0].token_id, 2);
  EXPECT_EQ(request.logit_bias[1].bias, -1);
}

TEST(ConvertRequest, CarriesStopConditionsOver) {
  const GenerationRequest request =
      *Convert(Parse("tokens { ids: 1 } stopping { stop_strings: 'x' ignore_eos: true include_stop_string: true }"));
  EXPECT_EQ(request.stop.stop_strings, std::vector<std::string>{"x"});
  EXPECT_TRUE(request.stop.ignore_eos);
  EXPECT_TRUE(request.stop.include_stop_string);
}

TEST(ConvertRequest, SortsStopTokensAndDropsRepeats) {
  EXPECT_EQ(Convert(Parse("tokens { ids: 1 } stopping { stop_token_ids: [7, 7, 3] }"))->stop.stop_token_ids,
            (std::vector<int32_t>{3, 7}));
}

TEST(ConvertRequest, CarriesOutputOptionsOver) {
  const GenerationRequest request = *Convert(
      Parse("tokens { ids: 1 } output { logprobs: 5 prompt_logprobs: 20 echo: true skip_special_tokens: false }"));
  EXPECT_EQ(request.output.num_logprobs, 5);
  EXPECT_EQ(request.output.num_prompt_logprobs, 20);
  EXPECT_TRUE(request.output.echo);
  EXPECT_FALSE(request.output.skip_special_tokens);
}

TEST(ConvertRequest, CarriesSpeculationOptionsOver) {
  const GenerationRequest request = *Convert(
      Parse("tokens { ids: 1 } speculation { mode: SPECULATION_MODE_OFF proposers: 'suffix' max_tree_nodes: 4 }"));
  EXPECT_EQ(request.speculation.mode, SpeculationMode::kOff);
  EXPECT_EQ(request.speculation.proposers, std::vector<std::string>{"suffix"});
  EXPECT_EQ(request.speculation.max_tree_nodes, 4);
}

// An added token may have no row in the model. Then neither texts nor ids may hold it.
TEST(ConvertRequest, RefusesTokensWithoutARowOfTheModel) {
  ServedModel model = DemoModel();
  model.vocabulary_size = 4093;
  const auto convert = [&](const std::string& fields) {
    return ConvertRequest(Parse(fields), model, [] { return kDrawn; }).status();
  };
  EXPECT_TRUE(convert("text: 'x'").ok());
  EXPECT_TRUE(convert("text: '<|im_start|>'").ok()) << "plain text";
  const std::string by_name =
      "expected tokens that the model has a row for, ids below 4093; got \"<|im_start|>\" with id ";
  for (const auto& [field, fields] :
       {std::pair("text", "text: 'x<|im_start|>' parse_special_tokens: true"),
        {"speculation.prediction_text",
         "text: 'x' parse_special_tokens: true speculation { prediction_text: '<|im_start|>' }"}}) {
    const absl::Status status = convert(fields);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StartsWith(status.message(), absl::StrCat(field, ": ", by_name))) << status;
  }
  for (const auto& [field, fields] :
       {std::pair("tokens.ids[1]", "tokens { ids: [1, 4093] }"),
        {"sampling.allowed_token_ids[0]", "text: 'x' sampling { allowed_token_ids: 4094 }"},
        {"sampling.logit_bias[4093]", "text: 'x' sampling { logit_bias { key: 4093 value: 1 } }"}}) {
    const absl::Status status = convert(fields);
    EXPECT_TRUE(absl::StartsWith(status.message(), absl::StrCat(field, ": expected the id of a token, below 4093")))
        << status;
  }
}

}  // namespace
}  // namespace foretoken::verifier
