// SPDX-License-Identifier: Apache-2.0
// Measures what forms of output cost: the time to compile one, the time of a row's mask in a large vocabulary, and the
// masks' share of the steps of the demo target with 16 sequences and 32-node trees. It also counts the steps that JSON
// takes with the grammar's own guesses and without any. All times are those of one thread, by its own clock.
//
//   grammar_bench [--json]
#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/offline/oracle_proposer.h"
#include "common/tokenizer/tokenizer.h"
#include "kernels/check.h"
#include "tests/bench/findings.h"
#include "tests/bench/stopwatch.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/paths.h"
#include "verifier_service/engine/engine.h"
#include "verifier_service/grammar/grammar_matcher.h"

ABSL_FLAG(bool, json, false, "print JSON instead of a table");

namespace foretoken::bench {
namespace {

using verifier::Grammar;
using verifier::GrammarKind;
using verifier::GrammarSource;

constexpr int32_t kLargeVocabulary = 128'000;
constexpr int32_t kEndToken = 4092;  // of the demo target

const GrammarSource kPeople = {.kind = GrammarKind::kJsonSchema, .text = R"({"type":"array","minItems":30,"items":{
    "type":"object","properties":{"first_name":{"type":"string"},"age":{"type":"integer"},
    "is_member":{"type":"boolean"},"tags":{"type":"array","items":{"type":"string"}}},
    "required":["first_name","age","is_member","tags"],"additionalProperties":false}})"};

GrammarSource StringOf(int max_length) {
  return {.kind = GrammarKind::kJsonSchema, .text = absl::StrCat(R"({"type":"string","maxLength":)", max_length, "}")};
}

// The demo's tokens, then combinations of them as large vocabularies have them: nine of ten are words with or without a
// blank in front, the others hold signs and digits.
verifier::GrammarTokens LargeVocabulary(const tokenizer::Tokenizer& tokenizer) {
  verifier::GrammarTokens tokens =
      verifier::TokensOf(tokenizer.vocabulary(), kEndToken + 1, std::vector<int32_t>{kEndToken});
  std::vector<std::string> words, signs;
  for (const std::string& bytes : tokens.bytes) {
    const auto is_letter = [](char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)); };
    const absl::string_view tail = absl::StripPrefix(bytes, " ");
    (!tail.empty() && std::ranges::all_of(tail, is_letter) ? words : signs).push_back(bytes);
  }
  testing::RandomValues random(1);
  const auto any_of = [&](const std::vector<std::string>& texts) {
    return texts[random.Below(static_cast<int32_t>(texts.size()))];
  };
  while (std::ssize(tokens.bytes) < kLargeVocabulary) {
    const bool is_word = random.Below(10) > 0;
    const std::string more = any_of(words);
    std::string bytes = is_word ? any_of(words) : any_of(signs);
    absl::StrAppend(&bytes, is_word ? absl::StripPrefix(more, " ") : any_of(signs));
    tokens.bytes.push_back(bytes.substr(0, 14));
  }
  return tokens;
}

// The mean time of a mask along a random output, in microseconds.
double MaskMicroseconds(const std::shared_ptr<const Grammar>& grammar, int32_t num_tokens) {
  testing::RandomValues random(2);
  std::vector<uint32_t> mask((num_tokens + 31) / 32);
  double sum_ms = 0;
  int num_masks = 0;
  for (int text = 0; text < 20; ++text) {
    verifier::GrammarMatcher matcher(grammar);
    for (int token = 0; token < 60; ++token, ++num_masks) {
      sum_ms += 1e3 * Seconds(1, [&] { matcher.FillMask(mask); });
      std::vector<int32_t> ids;
      for (int32_t id = 0; id < num_tokens; ++id) {
        if ((mask[id / 32] >> id % 32 & 1) != 0) ids.push_back(id);
      }
      if (ids.empty() || !matcher.Accept(ids[random.Below(static_cast<int32_t>(ids.size()))])) break;
    }
  }
  return sum_ms * 1e3 / num_masks;
}

void MeasureGrammars(const tokenizer::Tokenizer& tokenizer, Findings& findings) {
  const verifier::GrammarTokens tokens = LargeVocabulary(tokenizer);
  const verifier::GrammarVocabulary vocabulary(tokens);
  struct Form {
    const char* name;
    GrammarSource source;
    double max_compile_ms = 100, max_mask_us = 60;
  };
  const Form forms[] = {
      {"JSON under a schema", kPeople},
      {"any JSON", {.kind = GrammarKind::kJsonSchema, .text = "{}"}},
      {"a regular expression", {.kind = GrammarKind::kRegex, .text = "[A-Z][a-z]+( [A-Z][a-z]+)*: [0-9]+(\\.[0-9]+)?"}},
      {"98 characters of any kind", {.kind = GrammarKind::kRegex, .text = ".{0,98}"}, /*max_compile_ms=*/500},
      {"a string of at most 40 characters", StringOf(40), 100, /*max_mask_us=*/100},
      {"a string of at most 255 characters", StringOf(255), 100, 100},
      {"a string of at most 1,000 characters", StringOf(1000), 100, 100}};
  for (const auto& [name, source, max_compile_ms, max_mask_us] : forms) {
    std::shared_ptr<const Grammar> grammar;
    std::string serialized;
    const double compile_ms = 1e3 * Seconds(1, [&] { grammar = *Grammar::Compile(source, vocabulary); });
    const double copy_ms = 1e3 * Seconds(1, [&] { serialized = grammar->Serialize(); }) +
                           1e3 * Seconds(1, [&] { (void)Grammar::Parse(serialized, vocabulary); });
    findings.Add({.what = absl::StrCat(name, ", 128k ids: compile"),
                  .value = compile_ms,
                  .unit = "ms",
                  .at_most = max_compile_ms});
    findings.Add({.what = absl::StrCat(name, ", 128k ids: to the verifier"), .value = copy_ms, .unit = "ms"});
    findings.Add({.what = absl::StrCat(name, ", 128k ids: mask of a row"),
                  .value = MaskMicroseconds(grammar, kLargeVocabulary),
                  .unit = "us",
                  .at_most = max_mask_us});
  }
}

struct Run {
  std::vector<std::vector<int32_t>> outputs;  // [sequences]
  verifier::EngineStats stats;
};

Run Generate(testing::LoadedModel& model, const tokenizer::Tokenizer& tokenizer, client::OracleProposer& proposer,
             const std::vector<verifier::GenerationRequest>& requests) {
  model::KvCache kv = model.transformer->MakeKvCache(1024);
  Run run;
  run.outputs.resize(requests.size());
  verifier::Engine engine({.max_mask_time = absl::Hours(1)},
                          {.transformer = model.transformer.get(),
                           .kv = &kv,
                           .tokenizer = &tokenizer,
                           .proposers = &proposer,
                           .end_token_ids = {kEndToken},
                           .publish =
                               [&run](const std::vector<verifier::SampleOutput>& outputs) {
                                 for (const verifier::SampleOutput& output : outputs) {
                                   std::vector<int32_t>& all = run.outputs[output.ticket - 1];
                                   all.insert(all.end(), output.token_ids.begin(), output.token_ids.end());
                                 }
                               },
                           .now = [] { return absl::UnixEpoch() + absl::Seconds(Now(1)); }});
  for (const verifier::GenerationRequest& request : requests) {
    FT_CHECK(engine.Submit(engine.Reserve().value(), request).ok());
  }
  while (engine.Step()) continue;
  run.stats = engine.GetStats();
  return run;
}

// 16 requests for lists of people.
std::vector<verifier::GenerationRequest> Requests(const tokenizer::Tokenizer& tokenizer, float temperature,
                                                  const std::shared_ptr<const Grammar>& grammar) {
  std::vector<verifier::GenerationRequest> requests;
  for (uint64_t i = 1; i <= 16; ++i) {
    verifier::GenerationRequest request{.ticket = i, .request_id = absl::StrCat(i)};
    request.prompt = tokenizer.Encode(absl::StrCat("people_", i, " = ")).value();
    request.sampling = {.temperature = temperature, .seed = i};
    request.stop.max_tokens = 160;
    request.grammar = grammar;
    request.speculation.mode = verifier::SpeculationMode::kOff;
    requests.push_back(std::move(request));
  }
  return requests;
}

// The steps of all samples. The engine's steps would be those of the slowest sample.
double SampleSteps(const verifier::EngineStats& stats) {
  const std::vector<uint64_t>& lengths = stats.speculation.accepted_lengths;
  return static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), uint64_t{0}));
}

// The steps with the grammar's guesses alone, and then with trees of 32 nodes.
void MeasureSteps(const tokenizer::Tokenizer& tokenizer, float temperature, Findings& findings) {
  testing::LoadedModel model = testing::LoadModel(testing::SourcePath("deploy/demo/target"), {.num_threads = 1});
  const verifier::GrammarVocabulary vocabulary(
      verifier::TokensOf(tokenizer.vocabulary(), kEndToken + 1, std::vector<int32_t>{kEndToken}));
  const std::shared_ptr<const Grammar> grammar = *Grammar::Compile(kPeople, vocabulary);
  std::vector<verifier::GenerationRequest> requests = Requests(tokenizer, temperature, grammar);
  client::OracleProposer silent(/*num_nodes=*/0), oracle(/*num_nodes=*/32);
  const Run plain = Generate(model, tokenizer, silent, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    oracle.Teach(requests[i].prompt, plain.outputs[i]);
    requests[i].speculation.mode = verifier::SpeculationMode::kAlways;
  }
  const Run guessed = Generate(model, tokenizer, silent, requests);
  const Run trees = Generate(model, tokenizer, oracle, requests);
  FT_CHECK(guessed.outputs == plain.outputs && trees.outputs == plain.outputs);
  const std::string what = absl::StrCat("16 sequences of JSON, 4,093 ids, temperature ", temperature, ": ");
  findings.Add({.what = absl::StrCat(what, "steps with the grammar's guesses"),
                .value = 100 * SampleSteps(guessed.stats) / SampleSteps(plain.stats),
                .unit = "% of plain",
                .at_most = 50});
  const double forward_seconds = (trees.stats.times.forward_ms + trees.stats.times.draw_ms) / 1e3;
  findings.Add({.what = absl::StrCat(what, "masks, with 32-node trees"),
                .value = 100 * absl::ToDoubleSeconds(trees.stats.mask_time) / forward_seconds,
                .unit = "% of the forward pass",
                .at_most = 5});
  findings.Add({.what = absl::StrCat(what, "the same, rows with a mask"),
                .value = static_cast<double>(trees.stats.num_masks) / static_cast<double>(trees.stats.num_steps),
                .unit = "rows a step"});
  findings.Add({.what = absl::StrCat(what, "the same, a row's mask"),
                .value = absl::ToDoubleMicroseconds(trees.stats.mask_time) / static_cast<double>(trees.stats.num_masks),
                .unit = "us"});
}

int Run(bool as_json) {
  const auto tokenizer = tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/target"));
  FT_CHECK(tokenizer.ok());
  Findings findings;
  MeasureGrammars(*tokenizer, findings);
  for (const float temperature : {0.0f, 0.8f}) MeasureSteps(*tokenizer, temperature, findings);
  findings.Print(as_json);
  return 0;
}

}  // namespace
}  // namespace foretoken::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return foretoken::bench::Run(absl::GetFlag(FLAGS_json));
}
