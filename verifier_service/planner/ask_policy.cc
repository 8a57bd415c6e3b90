// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/planner/ask_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace foretoken::verifier {
namespace {

// Before a load's first round chances are learned, for so many steps of a sequence or so long, whichever ends first; a
// probation lasts likewise. A cycle is a step of each sequence.
constexpr int32_t kLeastCycles = 16, kFirstSteps = 128, kProbationSteps = 64;
constexpr double kFirstMs = 2000, kProbationMs = 1000;
constexpr int32_t kPause = 64;        // cycles between rounds, at least
constexpr double kPausePerLoss = 50;  // of time
// What a change sets off takes a while to be seen: a draft model that is not asked any more still ends what it is at.
constexpr int32_t kSettleCycles = 2, kMaxSettleCycles = 32;
constexpr double kSettleMs = 10;
// Cycles of a comparison, on each side: a few long ones, or as many short ones as fit in a while.
constexpr size_t kLeastTimed = 5, kMostTimed = 64;
constexpr double kTimedMs = 60;
constexpr double kKept = 1 - 1.0 / 256;  // texts repeat themselves in parts: more than one part is to be remembered
constexpr double kNewestRound = 0.5, kKeptUnseen = 0.5;
// Costs and speeds that differ by this part are not told from each other. Then to ask is the safer mistake: gains grow
// when a text begins to repeat itself.
constexpr double kNoise = 0.01;

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

// By how much `with` is most likely longer than `without`: the difference of the means less a standard error. Means,
// not medians: whoever takes a core away now and then costs as much as if it were a little always.
double LikelyDifference(const std::vector<double>& with, const std::vector<double>& without) {
  const Mean a = MeanOf(with), b = MeanOf(without);
  return std::max(0.0, a.value - b.value - std::sqrt(a.variance + b.variance));
}

}  // namespace

void AskPolicy::Pace::Add(const CycleOutcome& outcome) {
  num_cycles += 1;
  cycle_ms += outcome.cycle_ms;
  predicted_ms += outcome.predicted_ms;
  plain_ms += outcome.plain_ms;
  num_drawing += outcome.num_drawing;
  num_emitted += outcome.num_emitted;
}

void AskPolicy::Pace::Fade(double kept_part) {
  for (double* sum : {&num_cycles, &cycle_ms, &predicted_ms, &plain_ms, &num_drawing, &num_emitted}) *sum *= kept_part;
}

AskPolicy::AskPolicy(size_t num_proposers) : num_proposers_(num_proposers), loads_(kNumLoads) {
  for (Load& load : loads_) {
    load.worths.resize(num_proposers);
    load.until_round = kLeastCycles;
  }
}

uint32_t AskPolicy::AskedBits(const Load& load) {
  uint32_t bits = 0;
  for (size_t i = 0; i < load.worths.size(); ++i) bits |= uint32_t{load.worths[i].is_asked} << i;
  return bits;
}

void AskPolicy::EnterLoad(size_t load_idx) {
  load_idx_ = load_idx;
  Load& load = loads_[load_idx];
  if (load.num_rounds > 0) return;
  const auto distance = [&](const Load& other) { return std::abs(&other - &load); };
  const Load* nearest = nullptr;
  for (const Load& other : loads_) {
    if (other.num_rounds > 0 && (nearest == nullptr || distance(other) < distance(*nearest))) nearest = &other;
  }
  if (nearest == nullptr) return;
  for (size_t i = 0; i < num_proposers_; ++i) load.worths[i].is_asked = nearest->worths[i].is_asked;
}

AskPolicy::Choice AskPolicy::Choose(int32_t num_sequences, Trials trials) {
  // The nearest power of two: a batch of eight in which one ends now and then stays at its load.
  const auto power = static_cast<size_t>(std::lround(std::log2(std::max(1, num_sequences))));
  if (const size_t load_idx = std::min(power, kNumLoads - 1); load_idx != load_idx_) EnterLoad(load_idx);
  const std::optional<Round>& round = loads_[load_idx_].round;
  Choice choice;
  if (round.has_value() && trials == Trials::kGoOn) {
    choice.is_trial = true;
    choice.is_plain = round->phase != Phase::kProbation;
    if (round->phase != Phase::kNobodyAsked) choice.proposers = AllBits();
    if (round->phase == Phase::kOneLeftOut) choice.proposers &= ~(1u << round->cost_ms.size());
  } else {
    choice.proposers = AskedBits(loads_[load_idx_]);
  }
  if (choice.proposers != choice_.proposers || choice.is_plain != choice_.is_plain) {
    num_cycles_of_choice_ = 0;
    ms_of_choice_ = 0;
  }
  choice_ = choice;
  return choice;
}

void AskPolicy::Observe(const CycleOutcome& outcome) {
  if (outcome.num_emitted == 0 || num_proposers_ == 0) return;
  Load& load = loads_[load_idx_];
  if (!choice_.is_plain) Learn(outcome);
  if (!load.round.has_value()) {
    AwaitRound(outcome);
  } else if (choice_.is_trial) {
    Time(outcome);
  }
  ++num_cycles_of_choice_;
  ms_of_choice_ += outcome.cycle_ms;
}

void AskPolicy::AwaitRound(const CycleOutcome& outcome) {
  Load& load = loads_[load_idx_];
  ++load.num_cycles;
  load.elapsed_ms += outcome.cycle_ms;
  --load.until_round;
  load.until_round_ms -= outcome.cycle_ms;
  const bool is_taught = load.num_cycles >= kFirstSteps >> load_idx_ || load.elapsed_ms >= kFirstMs;
  if (load.until_round > 0 || load.until_round_ms > 0 || !is_taught) return;
  load.round = Round();
  if (choice_.proposers == AllBits()) {
    EndPhase();  // nobody is on probation
  } else {
    // What those who rest earned is long ago.
    FadeAll(load, std::min(1.0, kLeastCycles / load.paces[AllBits()].num_cycles));
  }
}

void AskPolicy::Learn(const CycleOutcome& outcome) {
  Load& load = loads_[load_idx_];
  if (choice_.proposers == AllBits()) {
    FadeAll(load, kKept);
    for (const uint32_t bits : outcome.accepted_by) {
      // What somebody named who is not asked would have been won anyway.
      if ((bits & ~AllBits()) == 0) ++load.num_won[bits];
    }
  } else {
    load.paces[choice_.proposers].Fade(kKept);
  }
  load.paces[choice_.proposers].Add(outcome);
}

void AskPolicy::FadeAll(Load& load, double kept_part) const {
  load.paces[AllBits()].Fade(kept_part);
  for (auto& [bits, num] : load.num_won) num *= kept_part;
}

void AskPolicy::Time(const CycleOutcome& outcome) {
  Round& round = *loads_[load_idx_].round;
  round.all.Add(outcome);
  ++round.num_cycles;
  round.elapsed_ms += outcome.cycle_ms;
  if (round.phase == Phase::kProbation) {
    const bool is_enough = round.num_cycles >= kProbationSteps >> load_idx_ || round.elapsed_ms >= kProbationMs;
    if (round.num_cycles >= kLeastCycles && is_enough) EndPhase();
    return;
  }
  const bool is_settled = num_cycles_of_choice_ >= kMaxSettleCycles ||
                          (num_cycles_of_choice_ >= kSettleCycles && ms_of_choice_ >= kSettleMs);
  if (!is_settled) return;
  round.timed_ms.push_back(outcome.cycle_ms - outcome.predicted_ms);
  round.timed.Add(outcome);
  const size_t num_timed = round.timed_ms.size();
  if (num_timed >= kLeastTimed && (num_timed >= kMostTimed || round.timed.cycle_ms >= kTimedMs)) EndPhase();
}

void AskPolicy::EndPhase() {
  Load& load = loads_[load_idx_];
  Round& round = *load.round;
  switch (round.phase) {
    case Phase::kProbation:
      round.phase = Phase::kAllAsked;
      break;
    case Phase::kAllAsked:
      round.all_asked_ms = round.timed_ms;
      round.phase = Phase::kNobodyAsked;
      break;
    case Phase::kNobodyAsked: {
      round.nobody_asked = round.timed;
      const double all_cost_ms = LikelyDifference(round.all_asked_ms, round.timed_ms);
      round.phase = Phase::kOneLeftOut;
      if (num_proposers_ == 1) {
        round.cost_ms = {all_cost_ms};
      } else if (all_cost_ms <= kNoise * load.paces[AllBits()].cycle_ms / load.paces[AllBits()].num_cycles) {
        round.cost_ms.assign(num_proposers_, 0);
      }
      break;
    }
    case Phase::kOneLeftOut:
      round.cost_ms.push_back(LikelyDifference(round.all_asked_ms, round.timed_ms));
      break;
  }
  round.num_cycles = 0;
  round.elapsed_ms = 0;
  round.timed_ms.clear();
  round.timed = {};
  if (round.cost_ms.size() == num_proposers_) Conclude();
}

double AskPolicy::NumWonBy(const Load& load, uint32_t proposers) const {
  double sum = 0;
  for (const auto& [bits, num] : load.num_won) sum += (bits & proposers) != 0 ? num : 0;
  return sum;
}

double AskPolicy::SpeedOf(const Load& load, uint32_t proposers) const {
  const double nobody_speed = load.round->nobody_asked.speed();
  if (proposers == 0) return nobody_speed;
  const auto known = load.paces.find(proposers);
  if (known != load.paces.end() && known->second.num_cycles >= kLeastCycles) return known->second.speed();

  // Times below are those of all the cycles together.
  Pace pace = load.paces.at(AllBits());
  double cost_ms = 0, all_cost_ms = 0;
  for (size_t i = 0; i < num_proposers_; ++i) {
    all_cost_ms += load.worths[i].cost_ms * pace.num_cycles;
    if ((proposers >> i & 1) != 0) cost_ms += load.worths[i].cost_ms * pace.num_cycles;
  }
  const double num_won = NumWonBy(load, proposers), num_all_won = NumWonBy(load, AllBits());
  const double won_part = num_all_won > 0 ? num_won / num_all_won : 1;
  const double cost_part = all_cost_ms > 0 ? cost_ms / all_cost_ms : won_part;
  const double bare_ms = pace.plain_ms / nobody_speed;
  const double rows_ms = pace.predicted_ms - pace.plain_ms;
  const double unexplained_ms = std::max(0.0, pace.cycle_ms - bare_ms - rows_ms - all_cost_ms);
  pace.cycle_ms = bare_ms + won_part * rows_ms + cost_ms + cost_part * unexplained_ms;
  pace.num_emitted += num_won - num_all_won;
  return pace.speed();
}

uint32_t AskPolicy::ChooseFastest(Load& load) const {
  const double num_emitted = load.paces.at(AllBits()).num_emitted;
  uint32_t chosen = 0;
  double fastest = SpeedOf(load, chosen);
  for (size_t step = 0; step < num_proposers_; ++step) {
    std::optional<size_t> best;
    double best_speed = 0;
    for (size_t i = 0; i < num_proposers_; ++i) {
      if ((chosen >> i & 1) != 0) continue;
      load.worths[i].gain = (NumWonBy(load, chosen | 1u << i) - NumWonBy(load, chosen)) / num_emitted;
      const double speed = SpeedOf(load, chosen | 1u << i);
      if (!best.has_value() || speed > best_speed) {
        best = i;
        best_speed = speed;
      }
    }
    if (best_speed < (1 - kNoise) * fastest) break;
    chosen |= 1u << *best;
    fastest = std::max(fastest, best_speed);
  }
  return chosen;
}

// How much sooner the round's tokens would have come as usual, or with nobody asked.
double AskPolicy::LostMs(const Load& load) const {
  double speed = load.round->nobody_asked.speed();
  const auto usual = load.paces.find(AskedBits(load));
  if (usual != load.paces.end()) speed = std::max(speed, usual->second.speed());
  return std::max(0.0, load.round->all.cycle_ms * (1 - load.round->all.speed() / speed));
}

void AskPolicy::Conclude() {
  Load& load = loads_[load_idx_];
  const bool is_first = load.num_rounds++ == 0;
  ++num_rounds_;
  for (size_t i = 0; i < num_proposers_; ++i) {
    double& cost_ms = load.worths[i].cost_ms;
    cost_ms += (is_first ? 1 : kNewestRound) * (load.round->cost_ms[i] - cost_ms);
  }
  load.until_round = kPause;
  load.until_round_ms = kPausePerLoss * LostMs(load);
  const uint32_t chosen = ChooseFastest(load);
  for (size_t i = 0; i < num_proposers_; ++i) load.worths[i].is_asked = (chosen >> i & 1) != 0;
  // What is not seen again fades, so that it is tried again one day.
  for (auto& [asked, pace] : load.paces) {
    if (asked != chosen && asked != AllBits()) pace.Fade(kKeptUnseen);
  }
  load.round.reset();
}

}  // namespace foretoken::verifier
