// SPDX-License-Identifier: Apache-2.0
// Outputs that follow a grammar. If this test fails, an output has a text that its form forbids, or the tokens depend
// on speculation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/error_text.h"
#include "nlohmann/json.hpp"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "verifier_service/engine/engine.h"

namespace foretoken::verifier {
namespace {

using ::testing::HasSubstr;
using testing::InProcessProposers;
using testing::Random;
using testing::Result;
using testing::Results;

constexpr char kPrompt[] = "def describe(person):\n    return ";
constexpr char kPerson[] = R"({"type":"object","properties":{"name":{"type":"string","pattern":"^[A-Z][a-z]{1,8}$"},
    "age":{"type":"integer","minimum":0,"maximum":150},
    "children":{"type":"array","items":{"enum":["Ada","Bob"]},"minItems":1,"maxItems":3}},
    "required":["name","age","children"],"additionalProperties":false})";

class EngineGrammarTest : public testing::EngineFixture {
 protected:
  static std::shared_ptr<const Grammar> Compiled(GrammarKind kind, const std::string& text) {
    static const GrammarVocabulary vocabulary(TokensOf(tokenizer_->vocabulary(), 4093, std::vector<int32_t>{4092}));
    const auto grammar = Grammar::Compile({.kind = kind, .text = text}, vocabulary);
    EXPECT_TRUE(grammar.ok()) << grammar.status();
    return *grammar;
  }

  GenerationRequest Formed(GrammarKind kind, const std::string& form, float temperature, int32_t max_tokens = 120) {
    GenerationRequest request = Request(kPrompt, temperature, max_tokens);
    request.grammar = Compiled(kind, form);
    return request;
  }

  // Requests with every kind of form, at both temperatures, and with the options that act on masks.
  std::vector<GenerationRequest> FormedRequests() {
    std::vector<GenerationRequest> requests;
    for (const float temperature : {0.0f, 1.0f}) {
      requests.push_back(Formed(GrammarKind::kJsonSchema, kPerson, temperature));
      requests.push_back(Formed(GrammarKind::kRegex, "[a-f]{3}-[0-9]+(px|em)", temperature));
      requests.push_back(Formed(GrammarKind::kEbnf, "root ::= \"(\" root \")\" | [x-z] [x-z]", temperature));
      requests.push_back(Formed(GrammarKind::kJsonSchema, "{}", temperature, 40));
      requests.back().num_samples = 3;
      requests.push_back(Formed(GrammarKind::kRegex, "[a-z ]*", temperature, 40));
      requests.back().stop.min_tokens = 12;
      requests.push_back(Formed(GrammarKind::kRegex, "[a-z]+ [a-z]+", temperature, 40));
      requests.back().banned_token_ids = tokenizer_->Encode("a").value();
      requests.back().output.num_logprobs = 3;
      requests.back().sampling.repetition_penalty = 1.2f;
      requests.push_back(Formed(GrammarKind::kJsonSchema, kPerson, temperature));
      requests.back().verification = kernels::VerificationRule::kRejectionSampling;
      requests.push_back(Request(kPrompt, temperature, 30));  // a neighbour without a form
    }
    return requests;
  }
};

TEST_F(EngineGrammarTest, EveryOutputHasItsForm) {
  InProcessProposers none;
  const std::vector<GenerationRequest> requests = FormedRequests();
  const Results results = Generate(requests, none);
  for (const auto& [key, result] : results) EXPECT_EQ(result.error, absl::OkStatus());
  for (const size_t i : {0, 8}) {
    const Result& person = results.at({requests[i].ticket, 0});
    ASSERT_EQ(person.finish_reason, FinishReason::kStop);
    const nlohmann::json json = nlohmann::json::parse(person.text, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(json.is_object()) << person.text;
    EXPECT_TRUE(json["name"].is_string() && json["age"].is_number_integer() && !json["children"].empty());
    EXPECT_THAT(results.at({requests[i + 1].ticket, 0}).text, ::testing::MatchesRegex("[a-f]+-[0-9]+(px|em)?"));
    EXPECT_GE(results.at({requests[i + 4].ticket, 0}).token_ids.size(), 12);
    EXPECT_THAT(results.at({requests[i + 5].ticket, 0}).text, ::testing::MatchesRegex("[a-z]+ ?[a-z]*"));
  }
}

TEST_F(EngineGrammarTest, SpeculationChangesNoToken) {
  InProcessProposers none;
  std::vector<GenerationRequest> requests = FormedRequests();
  for (GenerationRequest& request : requests) request.speculation.mode = SpeculationMode::kOff;
  const Results truth = Generate(requests, none);
  EXPECT_EQ(stats_.speculation.num_verified_nodes, 0);
  for (GenerationRequest& request : requests) request.speculation.mode = SpeculationMode::kAlways;
  const auto expect_truth = [&](InProcessProposers& proposers, const testing::EngineOptions& options) {
    const Results results = Generate(requests, proposers, options);
    for (const GenerationRequest& request : requests) {
      const bool is_sampled =
          request.verification == kernels::VerificationRule::kRejectionSampling && request.sampling.temperature > 0;
      for (int32_t i = 0; i < request.num_samples && !is_sampled; ++i) {
        EXPECT_EQ(results.at({request.ticket, i}), truth.at({request.ticket, i}));
      }
    }
  };
  InProcessProposers grammar_alone;
  expect_truth(grammar_alone, {});
  EXPECT_GT(stats_.proposers.back().num_accepted, 20) << "the grammar guessed nothing";
  InProcessProposers oracle({{"oracle", testing::Oracle(testing::WholeTexts(truth, requests))}});
  expect_truth(oracle, {.arrival_seed = 3});
  EXPECT_GT(stats_.proposers[0].num_accepted, 100);
  InProcessProposers random({{"random", Random(1)}});
  expect_truth(random, {.num_blocks = 48, .arrival_seed = 4});  // with preemptions
}

TEST_F(EngineGrammarTest, AForbiddenGuessGetsNoRow) {
  InProcessProposers none;
  GenerationRequest request = Formed(GrammarKind::kRegex, "[0-9]+", 0, 20);
  request.speculation.mode = SpeculationMode::kAlways;
  const int32_t letter = tokenizer_->Encode("a").value()[0];
  InProcessProposers letters({{"letters", [letter](std::span<const int32_t>, int32_t) {
                                 speculation::TokenTree tree;
                                 const int32_t first = tree.Append({.token_id = letter});
                                 tree.Append({.token_id = letter, .parent = first});
                                 return tree;
                               }}});
  for (const auto rule : {kernels::VerificationRule::kKeyedDraw, kernels::VerificationRule::kRejectionSampling}) {
    request.verification = rule;
    const Result truth = Generate({request}, none).begin()->second;
    EXPECT_EQ(Generate({request}, letters).begin()->second, truth);
    EXPECT_EQ(stats_.proposers[0].num_proposed, 0);
  }
}

TEST_F(EngineGrammarTest, FixedPartsOfAFormTakeFewSteps) {
  InProcessProposers none;
  GenerationRequest request =
      Formed(GrammarKind::kJsonSchema, R"({"type":"object","properties":{"first_name":{"const":"Ada"},
             "favourite_colour":{"enum":["red"]},"is_a_member":{"type":"boolean"}},"additionalProperties":false,
             "required":["first_name","favourite_colour","is_a_member"]})",
             0);
  request.speculation.mode = SpeculationMode::kOff;
  const Result plain = Generate({request}, none).begin()->second;
  const uint64_t num_plain_steps = stats_.num_steps;
  request.speculation.mode = SpeculationMode::kAuto;
  EXPECT_EQ(Generate({request}, none, {.now = testing::EvenClock()}).begin()->second, plain);
  EXPECT_LE(2 * stats_.num_steps, num_plain_steps) << plain;
}

TEST_F(EngineGrammarTest, MinTokensYieldWhereOnlyTheEndCanFollow) {
  InProcessProposers none;
  GenerationRequest request = Formed(GrammarKind::kRegex, "ab", 0, 20);
  request.stop.min_tokens = 15;
  const Result result = Generate({request}, none).begin()->second;
  EXPECT_EQ(result.text, "ab");
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
}

TEST_F(EngineGrammarTest, AFormThatListsLeaveNothingOfEndsItsRequestAlone) {
  InProcessProposers none;
  GenerationRequest empty = Formed(GrammarKind::kRegex, "[0-9]", 0);
  empty.allowed_token_ids = tokenizer_->Encode("a").value();
  const GenerationRequest other = Formed(GrammarKind::kRegex, "[a-z]+", 0, 10);
  const Results alone = Generate({other}, none);
  const Results results = Generate({empty, other}, none);
  EXPECT_THAT(results.at({empty.ticket, 0}).error.message(), HasSubstr("leave no token"));
  EXPECT_EQ(results.at({other.ticket, 0}), alone.at({other.ticket, 0}));
}

TEST_F(EngineGrammarTest, AFormWithSlowMasksIsEnded) {
  InProcessProposers none;
  const GenerationRequest request = Formed(GrammarKind::kRegex, "[a-z ]{100}", 0.5f);
  const testing::EngineOptions impatient = {.config = {.max_mask_time = absl::Nanoseconds(1)}};
  const Result result = Generate({request}, none, impatient).begin()->second;
  EXPECT_THAT(result.error.message(), HasSubstr("masks take at most 1ns"));
  EXPECT_FALSE(result.token_ids.empty());
}

TEST_F(EngineGrammarTest, TheFirstMasksMayTakeTheTimeOfThirtyTwo) {
  InProcessProposers none;
  const GenerationRequest request = Formed(GrammarKind::kRegex, "[a-z ]{100}", 0.5f);
  const auto num_tokens = [&](absl::Duration per_mask) {
    absl::Time now = absl::UnixEpoch();
    const testing::EngineOptions options = {.config = {.max_mask_time = absl::Milliseconds(5)},
                                            .compute_time = [&] { return now += per_mask; }};
    const Result result = Generate({request}, none, options).begin()->second;
    EXPECT_EQ(base::ReasonOf(result.error), "FORMAT_TOO_COSTLY");
    EXPECT_EQ(base::FieldOf(result.error), "response_format");
    return result.token_ids.size();
  };
  EXPECT_EQ(num_tokens(absl::Milliseconds(161)), 1);
  EXPECT_GT(num_tokens(absl::Milliseconds(16)), 1);
}

// A clock that advances at each reading: a mask and the token behind it take 4 ms of the 5 ms that they may take. The
// guesses that the grammar forbids take time, too.
TEST_F(EngineGrammarTest, TheTimeOfGuessesEndsNoRequest) {
  GenerationRequest request = Formed(GrammarKind::kRegex, "[0-9]{60}", 0.5f, 100);
  const int32_t letter = tokenizer_->Encode("a").value()[0];
  InProcessProposers letters({{"letters", [letter](std::span<const int32_t>, int32_t) {
                                 speculation::TokenTree tree;
                                 tree.Append({.token_id = letter});
                                 return tree;
                               }}});
  for (const auto mode : {SpeculationMode::kOff, SpeculationMode::kAlways}) {
    request.speculation.mode = mode;
    absl::Time now = absl::UnixEpoch();
    const testing::EngineOptions options = {.config = {.max_mask_time = absl::Milliseconds(5)},
                                            .compute_time = [&] { return now += absl::Milliseconds(2); }};
    const Result result = Generate({request}, letters, options).begin()->second;
    EXPECT_EQ(result.error, absl::OkStatus());
    EXPECT_EQ(result.text.size(), 60);
  }
}

// A clock that advances at each reading makes every mask slow, and a request without a form is running.
TEST_F(EngineGrammarTest, SamplesThatSitOutStepsSayTheSame) {
  InProcessProposers none;
  std::vector<GenerationRequest> requests;
  for (const float temperature : {0.0f, 0.8f}) {
    requests.push_back(Formed(GrammarKind::kRegex, "[a-z ]{60}", temperature));
    requests.back().num_samples = 2;
  }
  const Results truth = Generate(requests, none);
  requests.push_back(Request(kPrompt, 0, /*max_tokens=*/200));
  requests.back().stop.ignore_eos = true;
  absl::Time now = absl::UnixEpoch();
  const Results beside = Generate(
      requests, none, {.config = {.max_mask_time = absl::Hours(1)}, .now = testing::EvenClock(), .compute_time = [&] {
                         return now += absl::Milliseconds(20);
                       }});
  EXPECT_GT(stats_.num_sat_out, 0);
  for (const auto& [sample, result] : truth) EXPECT_EQ(beside.at(sample), result);
}

// Every blank of the text is one of ever more parses, so the matcher gives up within a few tokens.
TEST_F(EngineGrammarTest, AFormWithTooManyParsesIsEndedAtTheSameTokenWithSpeculation) {
  InProcessProposers none;
  GenerationRequest costly = Formed(GrammarKind::kEbnf, "root ::= s \"\\x01\"\ns ::= \" \" | s s", 0);
  costly.allowed_token_ids = tokenizer_->Encode(std::string(40, ' '), {.add_special_tokens = false}).value();
  ASSERT_EQ(costly.allowed_token_ids.size(), 1);
  costly.speculation.mode = SpeculationMode::kOff;
  const GenerationRequest other = Formed(GrammarKind::kRegex, "[a-z]+", 0, 10);
  const testing::EngineOptions patient = {.config = {.max_mask_time = absl::Hours(1)}};
  const Results alone = Generate({other}, none);
  const Results truth = Generate({costly, other}, none, patient);
  const Result& ended = truth.at({costly.ticket, 0});
  EXPECT_EQ(base::ReasonOf(ended.error), "FORMAT_TOO_COSTLY") << ended.error;
  EXPECT_THAT(ended.error.message(), HasSubstr("parser states"));
  EXPECT_THAT(ended.token_ids.size(), ::testing::AllOf(::testing::Ge(1), ::testing::Lt(100)));
  EXPECT_EQ(truth.at({other.ticket, 0}), alone.at({other.ticket, 0}));
  const int32_t blank = costly.allowed_token_ids[0];
  InProcessProposers chains({{"chain", [blank](std::span<const int32_t>, int32_t max_nodes) {
                                speculation::TokenTree tree;
                                for (int32_t i = 0; i < max_nodes; ++i)
                                  tree.Append({.token_id = blank, .parent = i - 1});
                                return tree;
                              }}});
  costly.speculation.mode = SpeculationMode::kAlways;
  const Results guessed = Generate({costly, other}, chains, patient);
  EXPECT_EQ(guessed, truth);
  EXPECT_GT(stats_.proposers[0].num_accepted, 0);
}

TEST_F(EngineGrammarTest, AFormThatNoTokenCanGoOnIsToBlame) {
  InProcessProposers none;
  const GenerationRequest request = Formed(GrammarKind::kEbnf, "root ::= \"a\" b\nb ::= c\nc ::= b", 0);
  const Result result = Generate({request}, none).begin()->second;
  EXPECT_EQ(result.text, "a");
  EXPECT_THAT(result.error.message(), HasSubstr("response_format: no token can follow"));
  EXPECT_EQ(base::ReasonOf(result.error), "NO_TOKEN_TO_DRAW");
  EXPECT_EQ(base::FieldOf(result.error), "response_format");
}

}  // namespace
}  // namespace foretoken::verifier
