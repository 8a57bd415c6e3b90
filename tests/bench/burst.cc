// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/burst.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/driven_engine.h"
#include "tests/bench/stopwatch.h"

namespace foretoken::bench {
namespace {

using verifier::SampleOutput;

constexpr uint64_t kTicketsPerRound = 1000;
constexpr uint64_t kOlderStream = 999;  // its ticket within a round
constexpr int32_t kShortestPrompt = 32;
constexpr int32_t kNumLengths = 97;

// The clients' view of a burst.
struct Burst {
  double tokens_per_s = 0;
  std::vector<double> first_token_s;  // of each request
  std::vector<double> worst_gap_s;    // of each request: the longest time between two of its tokens
  double older_gap_s = 0;             // the same of the older stream, while prompts are computed
};

verifier::EngineConfig ConfigOf(const model::Transformer& transformer, bool is_bounded) {
  verifier::EngineConfig config = {.max_step_rows = transformer.options().max_rows};
  if (!is_bounded) config.prompts.max_inter_token_growth = std::numeric_limits<float>::max();
  return config;
}

// Records the times of an engine's outputs by ticket.
class Watch {
 public:
  Watch(DrivenEngine& driven, int num_threads) : driven_(driven), num_threads_(num_threads) {
    driven_.on_outputs = [this](const std::vector<SampleOutput>& outputs) {
      const double now = Now(num_threads_);
      for (const SampleOutput& output : outputs) {
        if (output.token_ids.empty()) continue;
        num_tokens_ += output.token_ids.size();
        const auto [last, is_first] = last_.try_emplace(output.ticket, now);
        if (is_first) first_[output.ticket] = now;
        worst_[output.ticket] = std::max(worst_[output.ticket], now - last->second);
        last->second = now;
      }
    };
  }
  ~Watch() {
    driven_.on_outputs = [](const auto&) {};
  }

  bool HasBegun(uint64_t ticket) const { return first_.contains(ticket); }
  void ForgetGap(uint64_t ticket) { worst_[ticket] = 0; }
  double first(uint64_t ticket) const { return first_.at(ticket); }
  double worst(uint64_t ticket) const { return worst_.at(ticket); }
  size_t num_tokens() const { return num_tokens_; }

 private:
  DrivenEngine& driven_;
  const int num_threads_;
  std::map<uint64_t, double> first_, last_, worst_;
  size_t num_tokens_ = 0;
};

struct BurstOptions {
  int num_prompts = 8;
  int32_t num_tokens = 48;
  bool has_older_stream = false;
  int num_threads = 1;
};

Burst RunBurst(uint64_t round, const BurstOptions& options, DrivenEngine& driven) {
  Watch watch(driven, options.num_threads);
  const uint64_t first_ticket = kTicketsPerRound * round;
  if (options.has_older_stream) {
    driven.Submit(Ask(first_ticket + kOlderStream, RandomPrompt(static_cast<uint32_t>(round), 32), 512));
    for (int step = 0; step < 20; ++step) driven.engine.Step();
    watch.ForgetGap(first_ticket + kOlderStream);
  }
  const size_t num_before = watch.num_tokens();
  const double began = Now(options.num_threads);
  for (int i = 0; i < options.num_prompts; ++i) {
    const uint64_t ticket = first_ticket + i;
    const int32_t num_prompt_tokens = kShortestPrompt + static_cast<int32_t>(ticket * 37 % kNumLengths);
    driven.Submit(Ask(ticket, RandomPrompt(static_cast<uint32_t>(ticket), num_prompt_tokens), options.num_tokens));
    if (i == 0) driven.engine.Step();
  }
  Burst burst;
  const auto all_have_begun = [&] {
    for (int i = 0; i < options.num_prompts; ++i) {
      if (!watch.HasBegun(first_ticket + i)) return false;
    }
    return true;
  };
  while (!all_have_begun()) driven.engine.Step();
  if (options.has_older_stream) {
    burst.older_gap_s = watch.worst(first_ticket + kOlderStream);
    driven.engine.Abort(first_ticket + kOlderStream);
  }
  while (driven.engine.Step()) continue;
  const double elapsed_s = Now(options.num_threads) - began;
  burst.tokens_per_s = static_cast<double>(watch.num_tokens() - num_before) / elapsed_s;
  for (int i = 0; i < options.num_prompts; ++i) {
    burst.first_token_s.push_back(watch.first(first_ticket + i) - began);
    burst.worst_gap_s.push_back(watch.worst(first_ticket + i));
  }
  return burst;
}

// The engine with and without the bound.
struct Pair {
  DrivenEngine bounded, unbounded;
  uint64_t num_rounds = 0;

  Pair(model::Transformer& transformer, int num_threads)
      : bounded(transformer, num_threads, ConfigOf(transformer, /*is_bounded=*/true)),
        unbounded(transformer, num_threads, ConfigOf(transformer, /*is_bounded=*/false)) {}

  // Both engines get the same prompts, new ones in each round. The order alternates.
  std::pair<Burst, Burst> Run(const BurstOptions& options) {
    const uint64_t round = ++num_rounds;
    std::pair<Burst, Burst> bursts;
    if (round % 2 == 0) bursts.second = RunBurst(round, options, unbounded);
    bursts.first = RunBurst(round, options, bounded);
    if (round % 2 == 1) bursts.second = RunBurst(round, options, unbounded);
    return bursts;
  }
};

void Extend(const std::vector<double>& more, std::vector<double>* values) {
  values->insert(values->end(), more.begin(), more.end());
}

void AddBurst(Pair& pair, int num_prompts, const BurstSizes& sizes, int num_threads, Findings* findings) {
  const BurstOptions options = {.num_prompts = num_prompts, .num_tokens = sizes.num_tokens, .num_threads = num_threads};
  struct All {
    std::vector<double> rate, first_s, gap_s, slowest_s;
    void Add(const Burst& burst) {
      rate.push_back(burst.tokens_per_s);
      Extend(burst.first_token_s, &first_s);
      Extend(burst.worst_gap_s, &gap_s);
      slowest_s.push_back(*std::ranges::max_element(burst.worst_gap_s));
    }
  } bounded, unbounded;
  for (int round = 0; round < sizes.num_rounds; ++round) {
    const auto [with, without] = pair.Run(options);
    bounded.Add(with);
    unbounded.Add(without);
  }
  findings->Add(
      {.what = absl::StrCat("burst of ", num_prompts, " prompts"), .value = Median(bounded.rate), .unit = "tokens/s"});
  findings->Add({.what = "  against no bound on growth",
                 .value = MedianRatio(bounded.rate, unbounded.rate),
                 .unit = "x tokens/s",
                 .at_least = 0.97});
  findings->Add({.what = "  first token, median", .value = 1e3 * Median(bounded.first_s), .unit = "ms"});
  findings->Add({.what = "  a stream's longest wait for a token", .value = 1e3 * Median(bounded.gap_s), .unit = "ms"});
  findings->Add(
      {.what = "  the same, of the stream that waits longest", .value = 1e3 * Median(bounded.slowest_s), .unit = "ms"});
}

// An older stream keeps a bound on the time between its tokens. The bound follows the number of waiting prompts.
void AddBurstBesideAStream(Pair& pair, const BurstSizes& sizes, int num_threads, Findings* findings) {
  const BurstOptions options = {
      .num_prompts = 16, .num_tokens = sizes.num_tokens, .has_older_stream = true, .num_threads = num_threads};
  std::vector<double> bounded, unbounded, gap_s;
  for (int round = 0; round < sizes.num_rounds; ++round) {
    const auto [with, without] = pair.Run(options);
    bounded.push_back(with.tokens_per_s);
    unbounded.push_back(without.tokens_per_s);
    gap_s.push_back(with.older_gap_s);
  }
  findings->Add({.what = "burst of 16 beside an older stream", .value = Median(bounded), .unit = "tokens/s"});
  findings->Add(
      {.what = "  against no bound on growth", .value = MedianRatio(bounded, unbounded), .unit = "x tokens/s"});
  findings->Add({.what = "  the older stream's longest wait for a token", .value = 1e3 * Median(gap_s), .unit = "ms"});
}

}  // namespace

void MeasureBursts(model::Transformer& transformer, int num_threads, const BurstSizes& sizes, Findings* findings) {
  Pair pair(transformer, num_threads);
  // The engine learns the costs of rows while it serves, so the first rounds do not count.
  pair.Run({.num_prompts = 8, .num_tokens = sizes.num_tokens, .num_threads = num_threads});
  for (const int num_prompts : {8, 16}) AddBurst(pair, num_prompts, sizes, num_threads, findings);
  AddBurstBesideAStream(pair, sizes, num_threads, findings);
}

}  // namespace foretoken::bench
