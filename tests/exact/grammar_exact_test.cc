// SPDX-License-Identifier: Apache-2.0
// Forms of output, at random: every output parses and validates by a check that knows nothing of grammars, and has the
// same tokens with speculation on and off. If this test fails, a client that asked for JSON gets something else, or its
// answer depends on speculation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/cases/random_forms.h"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "verifier_service/engine/engine.h"

namespace foretoken::verifier {
namespace {

using testing::InProcessProposers;
using testing::RandomForm;
using testing::RandomValues;
using testing::Result;
using testing::Results;

class GrammarExact : public testing::EngineFixture {
 protected:
  static constexpr int kBatch = 25;  // forms at a time, each at two temperatures

  // Runs the forms in batches, each with speculation off, with the grammar's own guesses beside random ones, and with
  // an oracle.
  void ExpectExact(std::vector<RandomForm> forms, uint32_t seed) {
    const GrammarVocabulary vocabulary(TokensOf(tokenizer_->vocabulary(), 4093, std::vector<int32_t>{4092}));
    size_t num_samples = 0, num_unfinished = 0;
    for (size_t begin = 0; begin < forms.size(); begin += kBatch) {
      const auto batch = std::span(forms).subspan(begin, std::min<size_t>(kBatch, forms.size() - begin));
      std::vector<GenerationRequest> requests;
      for (const RandomForm& form : batch) {
        const auto grammar = Grammar::Compile(form.source, vocabulary);
        ASSERT_TRUE(grammar.ok()) << form.source.text << ": " << grammar.status();
        for (const float temperature : {0.0f, 1.0f}) {
          requests.push_back(Request("value = ", temperature, 600));
          requests.back().grammar = *grammar;
          requests.back().speculation.mode = SpeculationMode::kOff;
        }
      }
      const Results truth = Run(requests, {}, seed);
      for (size_t i = 0; i < requests.size(); ++i) {
        const Result& result = truth.at({requests[i].ticket, 0});
        EXPECT_EQ(result.error, absl::OkStatus());
        ++num_samples;
        if (result.finish_reason == FinishReason::kLength) {
          ++num_unfinished;
        } else {
          EXPECT_TRUE(batch[i / 2].accepts(result.text)) << batch[i / 2].source.text << "\n" << result.text;
        }
      }
      for (GenerationRequest& request : requests) request.speculation.mode = SpeculationMode::kAlways;
      EXPECT_EQ(Run(requests, {{"random", testing::Random(seed)}}, seed + 1), truth);
      num_grammar_accepted_ += stats_.proposers.back().num_accepted;
      EXPECT_EQ(Run(requests, {{"oracle", testing::Oracle(testing::WholeTexts(truth, requests))}}, seed + 2), truth);
      num_oracle_accepted_ += stats_.proposers[0].num_accepted;
    }
    std::cout << forms.size() << " forms, " << num_samples << " outputs, " << num_unfinished
              << " ended by max_tokens; accepted guesses: " << num_grammar_accepted_ << " of the grammar, "
              << num_oracle_accepted_ << " of the oracle\n";
    EXPECT_EQ(num_unfinished, 0);
    EXPECT_GT(num_oracle_accepted_, num_samples);
  }

  uint64_t num_grammar_accepted_ = 0, num_oracle_accepted_ = 0;

 private:
  Results Run(const std::vector<GenerationRequest>& requests, std::vector<InProcessProposers::Member> members,
              uint32_t seed) {
    InProcessProposers proposers(std::move(members));
    return Generate(
        requests, proposers,
        {.config = {.max_queued_requests = 1024, .max_running_samples = 16, .max_mask_time = absl::Hours(1)},
         .num_blocks = 512,
         .arrival_seed = seed});
  }
};

class GrammarExactLong : public GrammarExact {};

std::vector<RandomForm> Forms(int num_forms, uint32_t seed, RandomForm (*make)(RandomValues&)) {
  RandomValues random(seed);
  std::vector<RandomForm> forms;
  for (int i = 0; i < num_forms; ++i) forms.push_back(make(random));
  return forms;
}

TEST_F(GrammarExact, RandomSchemasValidate) {
  ExpectExact(Forms(75, 1, testing::RandomSchemaForm), 1);
  EXPECT_GT(num_grammar_accepted_, 300);
}

TEST_F(GrammarExact, RandomRegularExpressionsMatch) { ExpectExact(Forms(50, 2, testing::RandomRegexForm), 2); }

TEST_F(GrammarExactLong, AThousandRandomSchemasValidate) { ExpectExact(Forms(1000, 3, testing::RandomSchemaForm), 3); }

TEST_F(GrammarExactLong, TwoHundredRandomRegularExpressionsMatch) {
  ExpectExact(Forms(200, 4, testing::RandomRegexForm), 4);
}

// The checks of this suite can fail.
TEST_F(GrammarExact, TheChecksRefuseOtherTexts) {
  RandomValues random(5);
  int num_refused = 0;
  for (int i = 0; i < 50; ++i) {
    const RandomForm form = testing::RandomSchemaForm(random);
    num_refused += !form.accepts("{\"no\": 1}") + !form.accepts("[[[[1]]]]") + !form.accepts("");
  }
  EXPECT_EQ(num_refused, 150);
}

}  // namespace
}  // namespace foretoken::verifier
