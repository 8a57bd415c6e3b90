// SPDX-License-Identifier: Apache-2.0
// The distribution of the engine's output under rejection sampling, on the demo model with the draft model sampling for
// it. Many samples of one prompt, with two possible tokens at every place, are compared with the target's own rows. The
// pure rules alone cannot show that rows, budgets, re-rooting, merging and late trees leave the drawn children
// unchanged. If a test fails, a server's rejection-sampled outputs do not have the model's distribution.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "proposer_service/ngram/ngram.h"
#include "tests/testing/distributions/g_test.h"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "tests/testing/fakes/over_the_wire.h"
#include "tests/testing/fakes/sampling_proposer.h"
#include "tests/testing/models/draft_model.h"

namespace foretoken::testing {
namespace {

constexpr int32_t kNumTokens = 4093;
constexpr int32_t kNumDistributionTokens = 5;
constexpr float kTemperature = 4;           // flat distributions show a wrong rule
constexpr double kServedAlpha = 1e-4 / 16;  // for one of at most 16 cases

struct ServedCase {
  const char* name;
  std::vector<std::vector<int32_t>> children_by_depth;  // for each sampling proposer
  int num_drafts = 0;                                   // number of proposers that use the draft model
  bool has_ngram = false;
  bool has_prediction = false;
  int delay = 0;
  int32_t max_step_rows = 512;
  int32_t num_blocks = 256;
  bool has_form = false;  // every output has the form kForm, and proposers do not know it
  friend void PrintTo(const ServedCase& served_case, std::ostream* out) { *out << served_case.name; }
};

constexpr char kForm[] = "[\\n -/13579:-~]{200}";  // ASCII without even digits, which the draft likes here
bool IsOfForm(const tokenizer::Token& token) {
  return !token.special && std::ranges::all_of(token.bytes, [](char c) {
    return c == '\n' || (c >= ' ' && c <= '~' && (c < '0' || c > '9' || c % 2 == 1));
  });
}

// Compares the count of each text with the product of its tokens' probabilities. A row has the drawn token, then the
// most likely tokens. Each draw was between the first two of these that the case allows.
GTestResult FitOfResults(const Results& results, const std::function<bool(int32_t token_id)>& is_allowed) {
  struct Cell {
    int64_t count = 0;
    double prob = 1;
  };
  std::map<std::vector<int32_t>, Cell> cells;
  for (const auto& [key, result] : results) {
    Cell& cell = cells[result.token_ids];
    if (cell.count++ > 0) continue;
    for (const LogprobBits& row : result.logprobs) {
      const auto weight = [&](size_t i) { return std::exp(std::bit_cast<float>(row[i].second) / kTemperature); };
      double sum = 0;
      int num_allowed = 0;
      for (size_t i = 1; i < row.size() && num_allowed < 2; ++i) {
        if (!is_allowed(row[i].first)) continue;
        sum += weight(i);
        ++num_allowed;
      }
      EXPECT_EQ(num_allowed, 2);
      cell.prob *= weight(0) / sum;
    }
  }
  std::vector<int64_t> counts = {0};
  std::vector<double> probs = {1};  // cell 0: texts that never came
  for (const auto& [token_ids, cell] : cells) {
    counts.push_back(cell.count);
    probs.push_back(cell.prob);
    probs[0] -= cell.prob;
  }
  probs[0] = std::max(probs[0], 1e-12);
  return GTest(counts, probs);
}

class ServedDistribution : public EngineFixture, public ::testing::WithParamInterface<ServedCase> {
 protected:
  // The most likely output, with a wrong token in the middle.
  std::vector<int32_t> LikelyText(verifier::GenerationRequest request) {
    request.num_samples = 1;
    request.sampling.temperature = 0;
    InProcessProposers none;
    std::vector<int32_t> text = Generate({request}, none).begin()->second.token_ids;
    text[kNumDistributionTokens / 2] = 7;
    return text;
  }

  void Run(int32_t num_samples) {
    const ServedCase& param = GetParam();
    const LogitDistribution draft = Remembered(ModelDistribution(SourcePath("deploy/demo/draft")));
    proposer::NgramProposer ngram({});
    std::vector<std::unique_ptr<SamplingProposer>> samplers;
    std::vector<InProcessProposers::Member> proposers;
    for (const std::vector<int32_t>& children : param.children_by_depth) {
      samplers.push_back(std::make_unique<SamplingProposer>(
          draft,
          SamplingProposerOptions{
              .method = "sampling" + std::to_string(samplers.size()), .top_k = 4, .children_by_depth = children}));
      proposers.push_back(samplers.back().get());
    }
    std::vector<std::unique_ptr<DrivenDraft>> drafts;
    for (int i = 0; i < param.num_drafts; ++i) {
      drafts.push_back(std::make_unique<DrivenDraft>(proposer::DraftForestOptions{.num_sampled_children = 2,
                                                                                  .num_distribution_tokens = 4,
                                                                                  .sampling_salt = uint64_t(i + 1),
                                                                                  .max_grown_nodes = 8}));
      proposers.push_back(drafts.back().get());
    }
    if (param.has_ngram) proposers.push_back(&ngram);
    InProcessProposers client(proposers, OverTheWire(kNumTokens));
    client.set_delay(param.delay);
    verifier::GenerationRequest request =
        Request("import os\nfor i in range(10):\n    print(i)\nfor i in range(20):\n    print(i)\n", kTemperature,
                kNumDistributionTokens);
    ASSERT_GT(request.prompt.size(), 17);
    request.prompt.resize(17);  // a cached block and the root, so samples do not wait for the first sample's prompt
    request.verification = kernels::VerificationRule::kRejectionSampling;
    request.num_samples = num_samples;
    request.sampling.top_k = 2;
    request.output.num_logprobs = param.has_form ? 20 : 2;
    request.stop.ignore_eos = true;
    if (param.has_prediction)
      request.speculation.prediction = verifier::Prediction(LikelyText(request), kNumDistributionTokens);
    if (param.has_form) {
      const verifier::GrammarVocabulary vocabulary(verifier::TokensOf(tokenizer_->vocabulary(), kNumTokens, {}));
      request.grammar =
          verifier::Grammar::Compile({.kind = verifier::GrammarKind::kRegex, .text = kForm}, vocabulary).value();
      request.speculation.mode = verifier::SpeculationMode::kAlways;  // the even clock makes masks dear
    }
    const Results results = Generate({request}, client,
                                     {.config = {.max_running_samples = 48, .max_step_rows = param.max_step_rows},
                                      .num_blocks = param.num_blocks,
                                      .now = EvenClock()});
    ASSERT_EQ(results.size(), num_samples);
    const GTestResult fit = FitOfResults(results, [&](int32_t token_id) {
      return !param.has_form || IsOfForm(*tokenizer_->vocabulary().Find(token_id));
    });
    EXPECT_GE(fit.p_value, kServedAlpha) << fit;
    EXPECT_GT(fit.num_cells, 20);
    EXPECT_EQ(prediction_count().num_accepted > num_samples / 10, param.has_prediction);
    for (const verifier::ProposerCount& count : stats_.proposers) {
      ::testing::Test::RecordProperty(count.proposer + "_accepted", std::to_string(count.num_accepted));
    }
    ::testing::Test::RecordProperty("steps", std::to_string(stats_.num_steps));
    ::testing::Test::RecordProperty("p_value", std::to_string(fit.p_value));
  }
};

std::vector<ServedCase> Cases() {
  return {{.name = "None"},
          {.name = "Chain", .children_by_depth = {{1, 1, 1, 1}}},
          {.name = "Tree", .children_by_depth = {{3, 2, 1}}},
          {.name = "TreeWithFewRows", .children_by_depth = {{2, 2, 2}}, .max_step_rows = 96},
          {.name = "TreeWithoutRows", .children_by_depth = {{2, 2, 2}}, .max_step_rows = 48},
          {.name = "TreeWithFewBlocks", .children_by_depth = {{2, 2, 2}}, .num_blocks = 150},
          {.name = "TreeBesideGuesses", .children_by_depth = {{2, 1, 1}}, .has_ngram = true},
          {.name = "Prediction", .has_prediction = true},
          {.name = "TreeBesidePrediction", .children_by_depth = {{2, 1, 1}}, .has_prediction = true},
          {.name = "TwoTrees", .children_by_depth = {{2, 1, 1}, {1, 2}}},
          {.name = "DraftModel", .num_drafts = 1},
          {.name = "LateDraftModel", .num_drafts = 1, .delay = 1},
          {.name = "TwoDraftModelsBesideGuesses", .num_drafts = 2, .has_ngram = true},
          {.name = "TreeAndForm", .children_by_depth = {{2, 2, 1}}, .has_form = true},
          {.name = "LateTree", .children_by_depth = {{2, 2, 2, 1}}, .delay = 1}};
}

TEST_P(ServedDistribution, IsTheTargets) { Run(1500); }
INSTANTIATE_TEST_SUITE_P(Proposals, ServedDistribution, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

class ServedDistributionLong : public ServedDistribution {};
TEST_P(ServedDistributionLong, IsTheTargets) { Run(12000); }
INSTANTIATE_TEST_SUITE_P(Proposals, ServedDistributionLong, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace foretoken::testing
