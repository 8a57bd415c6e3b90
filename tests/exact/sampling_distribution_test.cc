// SPDX-License-Identifier: Apache-2.0
// The distribution of the engine's output, end to end, on the demo model with speculation that accepts guesses. The
// first two tokens of many samples must follow the model's own logits and the request's filters, Pr[t1, t2] = Pr[t1]
// Pr[t2 | t1], and samples must be independent of each other. If a test fails, clients get wrongly distributed or
// correlated samples.
//
// A case is a verification rule, what the request sets, and proposers. Seeds are fixed, so a case always gives the same
// p-values. The tests print them. Each p-value is compared with kAlpha divided by the number of tests, so that all
// tests together fail for one choice of seeds in 1 / kAlpha.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/model/forward_batch.h"
#include "proposer_service/ngram/ngram.h"
#include "tests/reference/sampling.h"
#include "tests/testing/cases/varied_requests.h"
#include "tests/testing/distributions/pair_distribution.h"
#include "tests/testing/engine_fixture.h"
#include "tests/testing/fakes/guesses.h"
#include "tests/testing/fakes/in_process_proposers.h"
#include "tests/testing/fakes/other_draw_backend.h"
#include "tests/testing/fakes/over_the_wire.h"
#include "tests/testing/fakes/sampling_proposer.h"

namespace foretoken::verifier {
namespace {

using kernels::SamplingParams;
using kernels::VerificationRule;
using speculation::TokenTree;
using testing::GTestResult;
using testing::Guess;
using testing::InProcessProposers;
using testing::Pair;
using testing::PairDistribution;

constexpr double kAlpha = 1e-4;
// The places where prompts are cut from the demo prompts. Many continuations are possible there, including copies of
// the text before.
constexpr int kPromptBegins[] = {0, 340, 980};
constexpr int kNumTestsPerPrompt = 3;
constexpr size_t kPieceTokens = 16;
constexpr size_t kPromptTokens = 3 * kPieceTokens + 1;
constexpr int32_t kSamplesPerRequest = 64;
constexpr int kFewRequests = 10;
constexpr int kManyRequests = 64;

// kDraft: the draft model's samples under rejection sampling, and its best children under the keyed draw.
enum class Proposers { kNgram, kLikely, kDraft };

struct DistributionCase {
  std::string name;
  VerificationRule rule = VerificationRule::kKeyedDraw;
  SamplingParams sampling;
  Proposers proposers = Proposers::kNgram;
  bool has_lists = false;  // the most likely first token is banned, the next two have biases
};

void PrintTo(const DistributionCase& distribution_case, std::ostream* out) { *out << distribution_case.name; }

constexpr SamplingParams kTemperature10 = {.temperature = 1};
constexpr SamplingParams kTemperature7 = {.temperature = 0.7f};
constexpr SamplingParams kTopP9 = {.temperature = 1, .top_p = 0.9f};
constexpr SamplingParams kPenalties = {
    .temperature = 1, .repetition_penalty = 1.2f, .presence_penalty = 0.5f, .frequency_penalty = 0.5f};

// Under the keyed draw all proposers give the same samples (E2), so one proposer per case is enough.
const DistributionCase kCases[] = {
    {"KeyedDrawTemperature10Likely", VerificationRule::kKeyedDraw, kTemperature10, Proposers::kLikely},
    {"KeyedDrawTemperature7Ngram", VerificationRule::kKeyedDraw, kTemperature7, Proposers::kNgram},
    {"KeyedDrawTopP9Draft", VerificationRule::kKeyedDraw, kTopP9, Proposers::kDraft},
    {"RejectionTemperature10Ngram", VerificationRule::kRejectionSampling, kTemperature10, Proposers::kNgram},
    {"RejectionTemperature10Draft", VerificationRule::kRejectionSampling, kTemperature10, Proposers::kDraft},
    {"RejectionTemperature7Likely", VerificationRule::kRejectionSampling, kTemperature7, Proposers::kLikely},
    {"RejectionTemperature7Draft", VerificationRule::kRejectionSampling, kTemperature7, Proposers::kDraft},
    {"RejectionTopP9Draft", VerificationRule::kRejectionSampling, kTopP9, Proposers::kDraft},
    {"RejectionPenaltiesDraft", VerificationRule::kRejectionSampling, kPenalties, Proposers::kDraft},
    {"RejectionListsDraft", VerificationRule::kRejectionSampling, kTemperature10, Proposers::kDraft, true},
};
constexpr double kAlphaOfOne = kAlpha / (std::size(kCases) * std::size(kPromptBegins) * kNumTestsPerPrompt);

// The first two tokens of every sample, by request and sample index.
using Samples = std::vector<std::vector<Pair>>;

std::vector<Pair> AllPairs(const Samples& samples) {
  std::vector<Pair> pairs;
  for (const std::vector<Pair>& request : samples) pairs.insert(pairs.end(), request.begin(), request.end());
  return pairs;
}

// The first tokens of samples 2 i and 2 i + 1 of a request.
std::vector<Pair> NeighboursByIndex(const Samples& samples) {
  std::vector<Pair> pairs;
  for (const std::vector<Pair>& request : samples) {
    for (size_t i = 0; i + 1 < request.size(); i += 2) pairs.push_back({request[i].first, request[i + 1].first});
  }
  return pairs;
}

// The first tokens of equal sample indices under seeds 2 i and 2 i + 1.
std::vector<Pair> NeighboursBySeed(const Samples& samples) {
  std::vector<Pair> pairs;
  for (size_t seed = 0; seed + 1 < samples.size(); seed += 2) {
    for (size_t i = 0; i < samples[seed].size(); ++i) {
      pairs.push_back({samples[seed][i].first, samples[seed + 1][i].first});
    }
  }
  return pairs;
}

// The `count` most likely tokens.
std::vector<int32_t> MostLikely(const std::vector<double>& distribution, int count) {
  std::vector<int32_t> token_ids(distribution.size());
  std::iota(token_ids.begin(), token_ids.end(), 0);
  std::ranges::partial_sort(token_ids, token_ids.begin() + count,
                            [&](int32_t a, int32_t b) { return distribution[a] > distribution[b]; });
  token_ids.resize(count);
  std::erase_if(token_ids, [&](int32_t token_id) { return distribution[token_id] == 0; });
  return token_ids;
}

// Guesses the likely tokens of the distribution, two tokens deep. A proposer without the noise cannot do better.
Guess Likely(const std::vector<int32_t>& prompt, const PairDistribution& distribution) {
  return [prompt, distribution](std::span<const int32_t> context, int32_t) {
    TokenTree tree;
    const auto add = [&](const std::vector<double>& tokens, int count, int32_t parent) {
      for (const int32_t token_id : MostLikely(tokens, count)) {
        testing::AddGuess(token_id, parent, static_cast<float>(tokens[token_id]), &tree);
      }
    };
    if (context.size() == prompt.size()) {
      add(distribution.first, 3, speculation::kRootParent);
      for (int32_t node = 0, num_first = tree.num_nodes(); node < num_first; ++node) {
        const auto second = distribution.second.find(tree.nodes[node].token_id);
        if (second != distribution.second.end()) add(second->second, /*count=*/node == 0 ? 2 : 1, node);
      }
    } else if (context.size() == prompt.size() + 1 && distribution.second.contains(context.back())) {
      add(distribution.second.at(context.back()), 4, speculation::kRootParent);
    }
    return tree;
  };
}

// The draft model's distributions after a prompt and after the first token. Guesses after more tokens do not matter, so
// any distribution serves there.
testing::LogitDistribution DrawnDistribution() {
  return [known = testing::Remembered(testing::ModelDistribution(testing::SourcePath("deploy/demo/draft")))](
             std::span<const int32_t> context) {
    return known(context.first(std::min(context.size(), kPromptTokens + 1)));
  };
}

class SamplingDistribution : public testing::EngineFixture {
 protected:
  // A piece of the demo prompts, three times, and one more token. So the n-gram proposer has seen the continuation.
  // With the cached prefix only the root's row is left to compute, so the first token has a tree too.
  std::vector<int32_t> Prompt(int begin) const {
    const std::vector<int32_t> text = testing::DemoText(*tokenizer_);
    std::vector<int32_t> prompt;
    while (prompt.size() < kPromptTokens) prompt.push_back(text[begin + prompt.size() % kPieceTokens]);
    return prompt;
  }

  // Three tokens each, so that the second token still has guesses below it. Guesses at the end of a sample are cut.
  GenerationRequest RequestOf(const std::vector<int32_t>& prompt, const DistributionCase& distribution_case) {
    GenerationRequest request;
    request.prompt = prompt;
    request.verification = distribution_case.rule;
    request.sampling = distribution_case.sampling;
    request.num_samples = kSamplesPerRequest;
    request.stop = {.max_tokens = 3, .ignore_eos = true};
    if (distribution_case.has_lists) {
      const std::vector<int32_t> likely = MostLikely(Distribution(request, /*num_requests=*/0).first, 3);
      request.banned_token_ids = {likely[0]};
      request.logit_bias = {{likely[1], -1}, {likely[2], 1}};
    }
    return request;
  }

  InProcessProposers::Member MakeProposer(Proposers proposers, const std::vector<int32_t>& prompt,
                                          const PairDistribution& distribution) {
    if (proposers == Proposers::kDraft) return &draft_;
    if (proposers == Proposers::kNgram) return &ngram_;
    return {"likely", Likely(prompt, distribution)};
  }

  // Generates `num_requests` times, each with its own seed. Fails unless the engine accepts a good part of the guesses.
  Samples Draw(const GenerationRequest& request, Proposers kind, const PairDistribution& distribution,
               int num_requests) {
    InProcessProposers proposers({MakeProposer(kind, request.prompt, distribution)},
                                 testing::OverTheWire(tokenizer_->vocabulary().num_ids()));
    const testing::EngineOptions options = {.config = {.max_queued_requests = 1024,
                                                       .max_queued_samples = 1 << 16,
                                                       .max_running_samples = 48,
                                                       .max_tree_nodes = 7},
                                            .now = testing::EvenClock()};
    std::vector<GenerationRequest> requests(num_requests, request);
    for (int i = 0; i < num_requests; ++i) {
      requests[i].ticket = static_cast<Ticket>(i);
      requests[i].request_id = std::to_string(i);
      requests[i].sampling.seed = 1000 + static_cast<uint64_t>(i);
    }
    Samples samples(num_requests, std::vector<Pair>(kSamplesPerRequest));
    for (const auto& [key, result] : Generate(requests, proposers, options)) {
      samples[key.first][key.second] = {result.token_ids.at(0), result.token_ids.at(1)};
    }
    std::cout << stats_.proposers[0].num_accepted << " of " << stats_.proposers[0].num_proposed
              << " guesses accepted\n";
    EXPECT_GT(stats_.proposers[0].num_accepted, num_requests * kSamplesPerRequest / 20);
    return samples;
  }

  // Computes the distribution from the logits of plain decoding: after the prompt, and after each first token that
  // `num_requests` requests make often enough for a test.
  PairDistribution Distribution(const GenerationRequest& request, int num_requests);

  void CheckDistribution(const DistributionCase& distribution_case, std::span<const int> prompt_begins,
                         int num_requests) {
    for (const int begin : prompt_begins) {
      const GenerationRequest request = RequestOf(Prompt(begin), distribution_case);
      const PairDistribution distribution = Distribution(request, num_requests);
      const Samples samples = Draw(request, distribution_case.proposers, distribution, num_requests);
      Check("pairs", begin, testing::TestPairs(AllPairs(samples), distribution));
      Check("sample indices", begin, testing::TestIndependentPairs(NeighboursByIndex(samples), distribution.first));
      Check("seeds", begin, testing::TestIndependentPairs(NeighboursBySeed(samples), distribution.first));
    }
  }

 private:
  int32_t num_tokens() const { return static_cast<int32_t>(tokenizer_->vocabulary().num_ids()); }

  void Check(const std::string& what, int prompt_begin, const GTestResult& result) {
    std::cout << "prompt at " << prompt_begin << ", " << what << ": " << result << "\n";
    EXPECT_GE(result.p_value, kAlphaOfOne) << what;
    EXPECT_GE(result.num_cells, 4) << what;
  }

  proposer::NgramProposer ngram_{{}};
  testing::SamplingProposer draft_{DrawnDistribution(), {.top_k = 8, .children_by_depth = {3, 1}}};
};

PairDistribution SamplingDistribution::Distribution(const GenerationRequest& request, int num_requests) {
  const model::KvCache kv = model_->transformer->MakeKvCache(/*num_blocks=*/8);
  const std::vector<int32_t> blocks = {0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<uint32_t> mask((num_tokens() + 31) / 32, ~0u);
  for (const int32_t token_id : request.banned_token_ids) mask[token_id / 32] &= ~(1u << token_id % 32);
  std::vector<kernels::TokenCount> counts;
  for (const int32_t token_id : std::set(request.prompt.begin(), request.prompt.end())) counts.push_back({token_id, 0});
  const auto distribution_after = [&](const std::vector<int32_t>& generated) {
    std::vector<int32_t> chain = request.prompt;
    chain.insert(chain.end(), generated.begin(), generated.end());
    model::ForwardBatch batch;
    batch.logit_rows = {model::AppendSegment({.block_table = blocks, .first_position = 0, .chain = chain}, &batch)};
    const kernels::ConstTensorView row = model_->transformer->Forward(batch, kv);
    std::vector<float> logits(num_tokens());
    kernels::Backend& backend = model_->transformer->backend();
    backend.Copy(logits.data(), row.data, logits.size() * sizeof(float), kernels::CopyKind::kToHost);
    backend.Synchronize();
    return reference::FilteredDistribution({.logits = std::move(logits),
                                            .sampling = request.sampling,
                                            .bias = request.logit_bias,
                                            .counts = counts,
                                            .path_token_ids = generated,
                                            .mask = mask});
  };
  PairDistribution distribution = {.first = distribution_after({})};
  for (int32_t token_id = 0; token_id < num_tokens(); ++token_id) {
    if (num_requests * kSamplesPerRequest * distribution.first[token_id] < GTestResult::kMinExpected) continue;
    distribution.second[token_id] = distribution_after({token_id});
  }
  return distribution;
}

class SamplingDistributionOfACase : public SamplingDistribution,
                                    public ::testing::WithParamInterface<DistributionCase> {};
class SamplingDistributionLong : public SamplingDistribution, public ::testing::WithParamInterface<DistributionCase> {};

TEST_P(SamplingDistributionOfACase, IsTheModels) {
  CheckDistribution(GetParam(), std::span(kPromptBegins).first(1), kFewRequests);
}
TEST_P(SamplingDistributionLong, IsTheModels) { CheckDistribution(GetParam(), kPromptBegins, kManyRequests); }

constexpr auto kNameOfCase = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(, SamplingDistributionOfACase, ::testing::ValuesIn(kCases), kNameOfCase);
INSTANTIATE_TEST_SUITE_P(, SamplingDistributionLong, ::testing::ValuesIn(kCases), kNameOfCase);

// Faults that the tests above must detect.
class SamplingDistributionControl : public SamplingDistribution {
 protected:
  const DistributionCase case_ = {.name = "Control", .sampling = kTemperature10, .proposers = Proposers::kLikely};
  const GenerationRequest request_ = RequestOf(Prompt(kPromptBegins[0]), case_);
  const int num_requests_ = 16;

  PairDistribution DistributionUnder(const SamplingParams& sampling) {
    GenerationRequest request = request_;
    request.sampling = sampling;
    return Distribution(request, num_requests_);
  }

  // Draws samples by a rule that may be wrong.
  Samples DrawBy(const testing::AcceptRule& rule, const PairDistribution& distribution) {
    testing::LoadedModel model = testing::LoadModel(
        testing::SourcePath("deploy/demo/target"), {.wrap_backend = [&](std::unique_ptr<kernels::Backend> real) {
          return std::make_unique<testing::OtherDrawBackend>(std::move(real), rule);
        }});
    Use(*model.transformer);
    return Draw(request_, case_.proposers, distribution, num_requests_);
  }
};

TEST_F(SamplingDistributionControl, RejectsASlightlyWrongTemperature) {
  const PairDistribution distribution = Distribution(request_, num_requests_);
  const std::vector<Pair> pairs = AllPairs(Draw(request_, case_.proposers, distribution, num_requests_));
  EXPECT_GE(testing::TestPairs(pairs, distribution).p_value, kAlphaOfOne);
  const GTestResult wrong = testing::TestPairs(pairs, DistributionUnder({.temperature = 1.1f}));
  std::cout << wrong << "\n";
  EXPECT_LT(wrong.p_value, kAlphaOfOne);
}

TEST_F(SamplingDistributionControl, RejectsATokenThatIsCut) {
  const std::vector<Pair> pairs =
      AllPairs(Draw(request_, case_.proposers, Distribution(request_, num_requests_), num_requests_));
  const PairDistribution cut = DistributionUnder({.temperature = 1, .top_p = 0.999f});
  EXPECT_EQ(testing::TestPairs(pairs, cut).p_value, 0);
}

// Draws a second time if the first draw accepts less, so every guess gets two chances.
TEST_F(SamplingDistributionControl, RejectsARuleThatTriesAgainUntilItAccepts) {
  const PairDistribution distribution = Distribution(request_, num_requests_);
  const Samples samples = DrawBy(
      [](kernels::Backend& real, kernels::AcceptTreesArgs args) {
        real.AcceptTrees(args);
        std::vector<kernels::TreeToAccept> trees(args.trees.begin(), args.trees.end());
        for (kernels::TreeToAccept& tree : trees) tree.sampling.sample_index += 1000;
        std::vector<kernels::AcceptedPath> again(trees.size());
        const std::span<kernels::AcceptedPath> paths = args.paths;
        args.trees = trees;
        args.paths = again;
        real.AcceptTrees(args);
        real.Synchronize();
        for (size_t i = 0; i < trees.size(); ++i) {
          if (again[i].token_ids.size() > paths[i].token_ids.size()) paths[i] = again[i];
        }
      },
      distribution);
  const GTestResult result = testing::TestPairs(AllPairs(samples), distribution);
  std::cout << result << "\n";
  EXPECT_LT(result.p_value, kAlphaOfOne);
}

TEST_F(SamplingDistributionControl, RejectsSamplesThatShareTheirNoise) {
  const PairDistribution distribution = Distribution(request_, num_requests_);
  const Samples samples = DrawBy(
      [](kernels::Backend& real, kernels::AcceptTreesArgs args) {
        std::vector<kernels::TreeToAccept> trees(args.trees.begin(), args.trees.end());
        for (kernels::TreeToAccept& tree : trees) tree.sampling.sample_index /= 2;
        args.trees = trees;
        real.AcceptTrees(args);
      },
      distribution);
  EXPECT_LT(testing::TestIndependentPairs(NeighboursByIndex(samples), distribution.first).p_value, kAlphaOfOne);
}

}  // namespace
}  // namespace foretoken::verifier
