// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/ask_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace foretoken::verifier {
namespace {

// Cycles at a load before its first round, in which chances are learned, and of a probation: short ones are many.
constexpr int32_t kLeastCycles = 16, kFirstCycles = 128, kProbationCycles = 64;
constexpr double kFirstMs = 2000, kProbationMs = 1000;
constexpr int32_t kPause = 64;        // cycles between rounds, at least
constexpr double kPausePerLoss = 50;  // of time
// What a change sets off takes a while to be seen: a draft model that is not asked any more still ends what it is at.
constexpr int32_t kSettleCycles = 2, kMaxSettleCycles = 32;
constexpr double kSettleMs = 10;
// Cycles of a comparison, on each side: a few long ones, or as many short ones as fit in a while.
constexpr size_t kLeastTimed = 5, kMostTimed = 64;
constexpr double kTimedMs = 20;
constexpr int32_t kMemory = 64;        // cycles that a moving mean remembers
constexpr int32_t kPartsMemory = 256;  // texts repeat themselves in parts: more than one part is to be remembered
constexpr double kNewestRound = 0.5;
// A cost below this part of a cycle is not told from noise. To ask is the safer mistake: gains grow when a text begins
// to repeat itself.
constexpr double kNoise = 0.01;
// Of the rate without anybody: what they come to with everybody must be at least this, for a while may be a bad one.
constexpr double kLeastRate = 0.9;

struct Mean {
  double value = 0;
  double variance = 0;  // of the mean itself
};

Mean MeanOf(const std::vector<double>& values) {
  const auto num = static_cast<double>(values.size());
  Mean mean;
  for (const double value : values) mean.value += value / num;
  for (const double value : values) mean.variance += (value - mean.value) * (value - mean.value) / (num * (num - 1));
  return mean;
}

// By how much `with` is surely longer than `without`: the difference of the means less two standard errors. Means, not
// medians: whoever takes a core away now and then costs as much as if it were a little always.
double SureDifference(const std::vector<double>& with, const std::vector<double>& without) {
  const Mean a = MeanOf(with), b = MeanOf(without);
  return std::max(0.0, a.value - b.value - 2 * std::sqrt(a.variance + b.variance));
}

}  // namespace

AskPolicy::AskPolicy(size_t num_proposers) : num_proposers_(num_proposers), loads_(kNumLoads) {
  for (Load& load : loads_) {
    load.worths.resize(num_proposers);
    load.until_round = kLeastCycles;
  }
  loads_[load_idx_].is_known = true;
}

void AskPolicy::EnterLoad(size_t load_idx) {
  Load& load = loads_[load_idx];
  if (!std::exchange(load.is_known, true)) {
    // Until a round says more, what was right at the load before is.
    for (size_t i = 0; i < num_proposers_; ++i) load.worths[i].is_asked = loads_[load_idx_].worths[i].is_asked;
  }
  load_idx_ = load_idx;
  round_.reset();
}

AskPolicy::Choice AskPolicy::Choose(int32_t num_sequences) {
  const auto width = static_cast<size_t>(std::bit_width(static_cast<uint32_t>(std::max(1, num_sequences))));
  if (const size_t load_idx = std::min(width, kNumLoads) - 1; load_idx != load_idx_) EnterLoad(load_idx);
  const Load& load = loads_[load_idx_];
  choice_ = {};
  if (round_.has_value()) {
    choice_.is_trial = true;
    choice_.is_plain = round_->phase != Phase::kProbation;
    if (round_->phase != Phase::kNobodyAsked) choice_.proposers = AllBits();
    if (round_->phase == Phase::kOneLeftOut) choice_.proposers &= ~(1u << round_->left_out);
  } else {
    for (size_t i = 0; i < num_proposers_; ++i) choice_.proposers |= uint32_t{load.worths[i].is_asked} << i;
  }
  return choice_;
}

void AskPolicy::Observe(const CycleOutcome& outcome) {
  if (outcome.num_emitted == 0 || num_proposers_ == 0) return;
  if (!choice_.is_plain && choice_.proposers == AllBits()) LearnParts(outcome);
  if (round_.has_value()) return Time(outcome);
  Load& load = loads_[load_idx_];
  load.num_cycles = std::min(load.num_cycles + 1, kMemory);
  load.cycle_ms += (outcome.cycle_ms - load.cycle_ms) / load.num_cycles;
  load.cycle_tokens += (outcome.num_emitted - load.cycle_tokens) / load.num_cycles;
  load.until_round_ms -= outcome.cycle_ms;
  ++load.num_usual;
  load.usual_ms += outcome.cycle_ms;
  if (--load.until_round > 0 || load.until_round_ms > 0) return;
  if (load.num_usual < kFirstCycles && load.usual_ms < kFirstMs) return;
  round_.emplace();
  if (choice_.proposers == AllBits()) {
    EndPhase();  // nobody is on probation
  } else {
    load.parts_weight = std::min(load.parts_weight, kLeastCycles);  // what those who rest earned is long ago
  }
}

void AskPolicy::LearnParts(const CycleOutcome& outcome) {
  Load& load = loads_[load_idx_];
  load.parts_weight = std::min(load.parts_weight + 1, kPartsMemory);
  const double newest = 1.0 / load.parts_weight;
  load.asked_cycle_ms += newest * (outcome.cycle_ms - load.asked_cycle_ms);
  load.asked_cycle_tokens += newest * (outcome.num_emitted - load.asked_cycle_tokens);
  for (auto& [bits, part] : load.parts) part *= 1 - newest;
  for (const uint32_t bits : outcome.accepted_by) {
    // What somebody named who is not asked would have been won anyway.
    if ((bits & ~AllBits()) == 0) load.parts[bits] += newest / outcome.num_emitted;
  }
}

void AskPolicy::Time(const CycleOutcome& outcome) {
  Round& round = *round_;
  round.all_ms += outcome.cycle_ms;
  round.num_emitted += outcome.num_emitted;
  const bool is_settled =
      round.num_cycles >= kMaxSettleCycles || (round.num_cycles >= kSettleCycles && round.elapsed_ms >= kSettleMs);
  ++round.num_cycles;
  round.elapsed_ms += outcome.cycle_ms;
  if (round.phase == Phase::kProbation) {
    const bool is_enough = round.num_cycles >= kProbationCycles || round.elapsed_ms >= kProbationMs;
    if (round.num_cycles >= kLeastCycles && is_enough) EndPhase();
    return;
  }
  if (is_settled && round.phase == Phase::kNobodyAsked) {
    round.nobody_asked_ms += outcome.cycle_ms;
    round.num_plain_tokens += outcome.num_emitted;
  }
  if (is_settled) round.timed_ms.push_back(outcome.cycle_ms - outcome.predicted_ms);
  if (is_settled) round.timed_for_ms += outcome.cycle_ms;
  const size_t num_timed = round.timed_ms.size();
  if (num_timed >= kLeastTimed && (num_timed >= kMostTimed || round.timed_for_ms >= kTimedMs)) EndPhase();
}

void AskPolicy::EndPhase() {
  Round& round = *round_;
  switch (round.phase) {
    case Phase::kProbation:
      round.phase = Phase::kAllAsked;
      break;
    case Phase::kAllAsked:
      round.all_asked_ms = round.timed_ms;
      round.phase = Phase::kNobodyAsked;
      break;
    case Phase::kNobodyAsked: {
      const double all_cost_ms = SureDifference(round.all_asked_ms, round.timed_ms);
      round.phase = Phase::kOneLeftOut;
      if (num_proposers_ == 1) {
        round.cost_ms = {all_cost_ms};
      } else if (all_cost_ms <= kNoise * loads_[load_idx_].asked_cycle_ms) {
        round.cost_ms.assign(num_proposers_, 0);
      }
      break;
    }
    case Phase::kOneLeftOut:
      round.cost_ms.push_back(SureDifference(round.all_asked_ms, round.timed_ms));
      break;
  }
  round.num_cycles = 0;
  round.elapsed_ms = 0;
  round.timed_ms.clear();
  round.timed_for_ms = 0;
  round.left_out = round.cost_ms.size();
  if (round.left_out == num_proposers_) Conclude();
}

uint32_t AskPolicy::ChooseWorthwhile(Load& load) {
  uint32_t chosen = 0;
  for (size_t step = 0; step < num_proposers_; ++step) {
    std::optional<size_t> best;
    double best_net = 0;
    for (size_t i = 0; i < num_proposers_; ++i) {
      if ((chosen >> i & 1) != 0) continue;
      Worth& worth = load.worths[i];
      worth.gain = 0;
      for (const auto& [bits, part] : load.parts) {
        if ((bits >> i & 1) != 0 && (bits & chosen) == 0) worth.gain += part;
      }
      const double net = worth.gain + kNoise - worth.cost_ms / load.asked_cycle_ms;
      if (net >= 0 && (!best.has_value() || net > best_net)) {
        best = i;
        best_net = net;
      }
    }
    if (!best.has_value()) break;
    chosen |= 1u << *best;
  }
  return chosen;
}

// How much sooner the round's tokens would have come in usual cycles, or in plain ones with nobody asked.
double AskPolicy::LostMs(const Load& load) const {
  const double usual_ms = load.cycle_ms / load.cycle_tokens;
  const double plain_ms = round_->nobody_asked_ms / round_->num_plain_tokens;
  return std::max(0.0, round_->all_ms - round_->num_emitted * std::min(usual_ms, plain_ms));
}

void AskPolicy::Conclude() {
  Load& load = loads_[load_idx_];
  const bool is_first = load.num_rounds++ == 0;
  ++num_rounds_;
  for (size_t i = 0; i < num_proposers_; ++i) {
    double& cost_ms = load.worths[i].cost_ms;
    cost_ms += (is_first ? 1 : kNewestRound) * (round_->cost_ms[i] - cost_ms);
  }
  uint32_t chosen = ChooseWorthwhile(load);
  const double asked_rate = load.asked_cycle_tokens / load.asked_cycle_ms;
  const double plain_rate = round_->num_plain_tokens / round_->nobody_asked_ms;
  if (chosen == AllBits() && asked_rate < kLeastRate * plain_rate) chosen = 0;
  for (size_t i = 0; i < num_proposers_; ++i) load.worths[i].is_asked = (chosen >> i & 1) != 0;
  load.until_round = kPause;
  load.until_round_ms = kPausePerLoss * LostMs(load);
  round_.reset();
}

}  // namespace foretoken::verifier
