// SPDX-License-Identifier: Apache-2.0
// Measures an n-gram session: a 32-node proposal on an 8,192-token context, and an appended token.
//
//   ngram_bench --benchmark_repetitions=11 --benchmark_report_aggregates_only=true
#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "proposer_service/ngram/ngram.h"
#include "tests/bench/stopwatch.h"

namespace foretoken::proposer {
namespace {

constexpr int32_t kContextTokens = 8192;
constexpr int32_t kNodeBudget = 32;

// Text with repetitions like code: mostly earlier phrases, cut off anywhere, between tokens of a skewed vocabulary.
std::vector<int32_t> RepetitiveText(int32_t num_tokens) {
  std::mt19937 random(1);
  std::geometric_distribution<int32_t> token(0.02);
  std::geometric_distribution<int32_t> phrase_length(0.08);
  std::vector<int32_t> text;
  while (text.size() < num_tokens) {
    if (text.size() > 100 && random() % 2 == 0) {
      const size_t begin = random() % (text.size() - 50);
      const int32_t length = std::min(phrase_length(random), 50);
      for (int32_t i = 0; i < length; ++i) text.push_back(text[begin + i]);
    } else {
      text.push_back(token(random));
    }
  }
  text.resize(num_tokens);
  return text;
}

// Every proposal follows an appended token, as in serving. Only the proposal is timed.
void BM_Propose(benchmark::State& state) {
  const std::vector<int32_t> text = RepetitiveText(kContextTokens + 1024);
  NgramProposer proposer({});
  int64_t num_nodes = 0;
  std::vector<double> proposals_us;
  while (state.KeepRunningBatch(1024)) {
    const std::unique_ptr<Session> session = proposer.Open({});
    session->Append(std::span(text).first(kContextTokens));
    double total = 0;
    for (int32_t i = 0; i < 1024; ++i) {
      session->Append(std::span(text).subspan(kContextTokens + i, 1));
      const ProposalRequest request = {session.get(), kNodeBudget};
      const auto begin = std::chrono::steady_clock::now();
      const std::vector<speculation::TokenTree> trees = proposer.Propose({&request, 1});
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      proposals_us.push_back(elapsed.count() * 1e6);
      total += elapsed.count();
      num_nodes += trees[0].num_nodes();
    }
    state.SetIterationTime(total);
  }
  state.counters["median_us"] = bench::Median(proposals_us);
  state.counters["nodes"] = benchmark::Counter(static_cast<double>(num_nodes) / state.iterations());
}
BENCHMARK(BM_Propose)->UseManualTime()->Unit(benchmark::kMicrosecond);

// A looping text fills every tree with one deep chain.
void BM_ProposeLoop(benchmark::State& state) {
  std::vector<int32_t> text(kContextTokens);
  for (int32_t i = 0; i < kContextTokens; ++i) text[i] = i % 300;
  NgramProposer proposer({});
  const std::unique_ptr<Session> session = proposer.Open({});
  session->Append(text);
  const ProposalRequest request = {session.get(), kNodeBudget};
  for (auto _ : state) benchmark::DoNotOptimize(proposer.Propose({&request, 1}));
}
BENCHMARK(BM_ProposeLoop)->Unit(benchmark::kMicrosecond);

void BM_Append(benchmark::State& state) {
  const std::vector<int32_t> text = RepetitiveText(kContextTokens);
  NgramProposer proposer({});
  for (auto _ : state) proposer.Open({})->Append(text);
  state.SetItemsProcessed(state.iterations() * kContextTokens);
}
BENCHMARK(BM_Append)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace foretoken::proposer
