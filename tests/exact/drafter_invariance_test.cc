// SPDX-License-Identifier: Apache-2.0
// E2, end to end. 200 requests on the demo model use every option of a request. They must give the same tokens,
// log-probability bits, finish reasons and text with speculation off and with any proposers: good, random, always
// wrong, late, dying, or all of these at once, in batches that never repeat. If this test fails, speculation changes a
// client's output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "proposer_service/ngram/ngram.h"
#include "tests/testing/cases/varied_requests.h"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "tests/testing/fakes/other_draw_backend.h"
#include "tests/testing/models/demo_drafters.h"
#include "tests/testing/models/draft_model.h"

namespace foretoken::verifier {
namespace {

using testing::EngineOptions;
using testing::InProcessProposers;
using ::testing::IsEmpty;
using testing::Results;
using testing::SampleKey;

using Requests = std::vector<GenerationRequest>;
using Texts = std::vector<std::vector<int32_t>>;

// Returns the samples that differ from the truth.
std::vector<SampleKey> Differences(const Results& truth, const Results& results) {
  EXPECT_EQ(truth.size(), results.size());
  std::vector<SampleKey> keys;
  for (const auto& [key, result] : truth) {
    const auto other = results.find(key);
    if (other == results.end() || !(other->second == result)) keys.push_back(key);
  }
  return keys;
}

class DrafterInvariance : public testing::EngineFixture {
 protected:
  // All requests at once, with room for all.
  static EngineOptions Roomy() {
    return {.config = {.max_queued_requests = 1024, .max_mask_time = absl::Hours(1)},
            .num_blocks = 1024,
            .now = testing::EvenClock()};
  }
  static testing::Forms Forms() {
    const GrammarVocabulary vocabulary(TokensOf(tokenizer_->vocabulary(), 4093, std::vector<int32_t>{4092}));
    testing::Forms forms;
    for (const GrammarSource& source : std::vector<GrammarSource>{
             {.kind = GrammarKind::kJsonSchema,
           .text = R"({"type":"object","properties":{"name":{"type":"string"},"ages":{"type":"array","items":
                  {"type":"integer"}}},"required":["name","ages"],"additionalProperties":false})"},
             {.kind = GrammarKind::kRegex, .text = "[a-z]+( [a-z]+)*"},
             {.kind = GrammarKind::kEbnf, .text = "root ::= \"    return \" [a-z_]+ (\", \" [a-z_]+)*"}}) {
      forms.push_back(Grammar::Compile(source, vocabulary).value());
    }
    return forms;
  }
  // A few requests at a time, in a random order.
  static EngineOptions Arriving(uint32_t seed, int32_t max_running) {
    EngineOptions options = Roomy();
    options.arrival_seed = seed;
    options.config.max_running_samples = max_running;
    options.config.max_step_rows = 256;
    return options;
  }

  uint64_t num_proposed() const { return Sum(&ProposerCount::num_proposed); }
  uint64_t num_accepted() const { return Sum(&ProposerCount::num_accepted); }
  const ProposerCount& grammar_count() const { return stats_.proposers.back(); }

  // Runs the requests once with every kind of proposer and compares with the truth. Returns the truth.
  Results CheckAllProposers(const Requests& requests);

 private:
  uint64_t Sum(uint64_t ProposerCount::*field) const {
    return std::accumulate(stats_.proposers.begin(), stats_.proposers.end(), uint64_t{0},
                           [&](uint64_t sum, const ProposerCount& count) { return sum + count.*field; });
  }
};

Results DrafterInvariance::CheckAllProposers(const Requests& requests) {
  InProcessProposers none;
  const Results truth = Generate(requests, none, Roomy());
  const Texts texts = testing::WholeTexts(truth, requests);
  const uint64_t num_tokens = stats_.num_generated_tokens;
  Requests asked = requests;
  const auto check = [&](const std::string& name, InProcessProposers& proposers, const EngineOptions& options,
                         const std::function<void(int)>& before_step = nullptr) {
    EXPECT_THAT(Differences(truth, Generate(asked, proposers, options, before_step)), IsEmpty()) << name;
    std::cout << name << ": " << stats_.num_generated_tokens << " tokens, " << num_accepted() << " of "
              << num_proposed() << " guesses accepted, " << stats_.num_steps << " steps, " << stats_.num_rows
              << " rows, " << stats_.num_preemptions << " preemptions, " << num_stops_in_trees_ << " stops in trees\n";
  };
  check("off, in another batch", none, Arriving(/*seed=*/1, /*max_running=*/7));
  EXPECT_EQ(stats_.num_generated_tokens, num_tokens);

  proposer::NgramProposer ngram({});
  InProcessProposers only_ngram({&ngram});
  check("n-gram", only_ngram, Arriving(/*seed=*/2, /*max_running=*/16));
  EXPECT_GT(num_accepted(), num_tokens / 20);

  InProcessProposers random({{"random", testing::Random(1)}});
  check("random", random, Arriving(/*seed=*/3, /*max_running=*/16));
  EXPECT_GT(num_proposed(), num_tokens);

  InProcessProposers wrong({{"wrong", testing::AlwaysWrong(texts)}});
  check("always wrong", wrong, Arriving(/*seed=*/4, /*max_running=*/16));
  EXPECT_GT(num_proposed(), num_tokens);
  EXPECT_EQ(num_accepted(), grammar_count().num_accepted) << "of guesses that forms forced";

  InProcessProposers right({{"right", testing::Oracle(texts)}});
  check("nearly always right", right, Arriving(/*seed=*/5, /*max_running=*/8));
  EXPECT_GT(num_accepted(), num_tokens / 2);
  EXPECT_GT(num_stops_in_trees_, 0);

  InProcessProposers late({{"late", testing::Oracle(texts)}});
  late.set_delay(3);
  check("three steps late", late, Arriving(/*seed=*/6, /*max_running=*/16));
  EXPECT_GT(num_accepted(), num_tokens / 20);

  InProcessProposers mortal({{"mortal", testing::Oracle(texts)}});
  check("dies and returns", mortal, Arriving(/*seed=*/7, /*max_running=*/16),
        [&](int step) { mortal.set_dead(step % 7 < 3); });
  EXPECT_GT(num_accepted(), num_tokens / 4);

  testing::DrivenDraft eagle3(testing::DemoEagle3(), {.max_grown_nodes = 12});
  testing::DrivenDraft p_eagle(testing::DemoPEagle(), {.max_grown_nodes = 12});
  InProcessProposers drafters({&eagle3, &p_eagle});
  check("drafters, with features in every second step", drafters, Arriving(/*seed=*/8, /*max_running=*/16),
        [&](int step) { drafters.set_gives_features(step % 2 == 0); });
  EXPECT_GT(num_accepted(), num_tokens / 10);

  const proposer::DraftForestOptions few = {.max_grown_nodes = 12};
  testing::DrivenDraft medusa(testing::DemoMedusa(), few), mlp(testing::DemoMlpSpeculator(), few),
      dflash(testing::RandomDflash(), few), dspark(testing::RandomDspark(), few), eagle(testing::RandomEagle(), few);
  InProcessProposers others({&medusa, &mlp, &dflash, &dspark, &eagle});
  check("all other drafters", others, Arriving(/*seed=*/10, /*max_running=*/16));
  EXPECT_GT(num_accepted(), num_tokens / 40);
  for (const ProposerCount& count : std::span(stats_.proposers).first(5)) EXPECT_GT(count.num_proposed, 0);

  // In the runs below clients predict their output, with errors.
  for (GenerationRequest& request : asked) {
    std::vector<int32_t> predicted = truth.at({request.ticket, 0}).token_ids;
    for (size_t i = request.ticket % 7; i < predicted.size(); i += 7) predicted[i] = predicted.front();
    request.speculation.prediction = Prediction(std::move(predicted), /*max_tokens=*/1024);
  }
  check("clients' predictions", none, Arriving(/*seed=*/9, /*max_running=*/16));
  EXPECT_GT(num_accepted(), num_tokens / 4);

  InProcessProposers all({&ngram,
                          &eagle3,
                          {"random", testing::Random(2)},
                          {"wrong", testing::AlwaysWrong(texts)},
                          {"right", testing::Oracle(texts)}});
  EngineOptions tight = Arriving(/*seed=*/12, /*max_running=*/16);
  tight.num_blocks = 22;  // the longest request needs 21
  check("all at once, with little memory", all, tight);
  // Other logits make other texts, and other times make other plans: an H200 accepted 11 of 272, a slow machine 9.
  EXPECT_GT(prediction_count().num_accepted, num_tokens / 40);
  EXPECT_GT(stats_.num_preemptions, 0);
  EXPECT_GT(num_accepted(), num_tokens / 10);
  return truth;
}

TEST_F(DrafterInvariance, HoldsForAFewRequests) {
  CheckAllProposers(testing::VariedRequests(*tokenizer_, 12, {0, 0.7f, 1.2f}, Forms()));
}

class DrafterInvarianceLong : public DrafterInvariance, public ::testing::WithParamInterface<float> {};

TEST_P(DrafterInvarianceLong, HoldsFor200Prompts) {
  const Requests requests = testing::VariedRequests(*tokenizer_, 200, {GetParam()}, Forms());
  const Results truth = CheckAllProposers(requests);
  const auto asks = [&](auto has) { return std::ranges::count_if(requests, has); };
  EXPECT_GT(asks([](const GenerationRequest& request) { return request.grammar != nullptr; }), 20);
  EXPECT_GT(asks([](const GenerationRequest& request) { return !request.allowed_token_ids.empty(); }), 15);
  EXPECT_GT(asks([](const GenerationRequest& request) { return !request.banned_token_ids.empty(); }), 15);
  EXPECT_GT(asks([](const GenerationRequest& request) { return request.output.echo; }), 10);
  const auto count = [&](auto has) { return std::ranges::count_if(truth, has); };
  EXPECT_GT(count([](const auto& sample) { return sample.first.second > 0; }), 20);
  EXPECT_GT(count([](const auto& sample) { return !sample.second.logprobs.empty(); }), 50);
  EXPECT_GT(count([](const auto& sample) { return !sample.second.prompt_logprobs.empty(); }), 10);
  EXPECT_GT(count([](const auto& sample) { return sample.second.matched_stop_string.has_value(); }), 20);
  EXPECT_GT(count([](const auto& sample) { return sample.second.matched_stop_token_id.has_value(); }), 20);
  EXPECT_GT(count([](const auto& sample) { return sample.second.finish_reason == FinishReason::kLength; }), 20);
  EXPECT_EQ(count([](const auto& sample) { return !sample.second.error.ok(); }), 0);
}

INSTANTIATE_TEST_SUITE_P(, DrafterInvarianceLong, ::testing::Values(0.f, 0.7f, 1.2f), [](const auto& info) {
  return "AtTemperature" + std::to_string(static_cast<int>(info.param * 10)) + "Tenths";
});

// Faults that the comparison above must detect. These rules are wrong with a tree and right without one.
class DrafterInvarianceControl : public DrafterInvariance {
 protected:
  // Returns the number of samples that differ between no speculation and good guesses under the rule.
  size_t NumDifferences(const testing::AcceptRule& rule) {
    testing::LoadedModel model = testing::LoadModel(
        testing::SourcePath("deploy/demo/target"), {.wrap_backend = [&](std::unique_ptr<kernels::Backend> real) {
          return std::make_unique<testing::OtherDrawBackend>(std::move(real), rule);
        }});
    Use(*model.transformer);
    const Requests requests = testing::VariedRequests(*tokenizer_, 12, {0.7f});
    InProcessProposers none;
    const Results truth = Generate(requests, none, Roomy());
    InProcessProposers right({{"right", testing::Oracle(testing::WholeTexts(truth, requests))}});
    return Differences(truth, Generate(requests, right, Roomy())).size();
  }
};

TEST_F(DrafterInvarianceControl, TheRealRuleMakesNoDifference) {
  EXPECT_EQ(NumDifferences([](kernels::Backend& real, const auto& args) { real.AcceptTrees(args); }), 0);
}

TEST_F(DrafterInvarianceControl, NoticesNoiseThatDependsOnTheTree) {
  EXPECT_GT(NumDifferences([](kernels::Backend& real, kernels::AcceptTreesArgs args) {
              std::vector<kernels::TreeToAccept> trees(args.trees.begin(), args.trees.end());
              for (kernels::TreeToAccept& tree : trees) tree.sampling.sample_index += tree.token_ids.size() - 1;
              args.trees = trees;
              real.AcceptTrees(args);
            }),
            0);
}

TEST_F(DrafterInvarianceControl, NoticesOneBitOfALogProbability) {
  EXPECT_GT(NumDifferences([](kernels::Backend& real, const kernels::AcceptTreesArgs& args) {
              real.AcceptTrees(args);
              real.Synchronize();
              for (kernels::AcceptedPath& path : args.paths) {
                if (path.logprobs.size() < 2) continue;
                float& logprob = path.logprobs[1].token.logprob;
                logprob = std::nextafter(logprob, 0.f);
              }
            }),
            0);
}

TEST_F(DrafterInvarianceControl, NoticesPenaltiesThatForgetTheContext) {
  EXPECT_GT(NumDifferences([](kernels::Backend& real, kernels::AcceptTreesArgs args) {
              std::vector<kernels::TreeToAccept> trees(args.trees.begin(), args.trees.end());
              for (kernels::TreeToAccept& tree : trees) {
                if (tree.token_ids.size() > 1) tree.counts = {};
              }
              args.trees = trees;
              real.AcceptTrees(args);
            }),
            0);
}

}  // namespace
}  // namespace foretoken::verifier
