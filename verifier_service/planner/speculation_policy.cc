// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/planner/speculation_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace foretoken::verifier {
namespace {

// The weight of the newest value in a moving mean.
constexpr double kNewest = 0.1;
// Every so many steps the planner checks a row count whose cost it does not know.
constexpr uint64_t kCuriousEvery = 32;
// Loads are 1, 2, 4 and so on sequences, up to 128. A server has few situations; the bound is for hostile requests.
constexpr int32_t kMaxLoad = 7;
constexpr size_t kMaxSituations = 64;
// Before the first trial the chances are learned; between two trials at least as much is decoded.
constexpr double kPauseCycles = 64, kPausePerLoss = 100;
// A block of a trial.
constexpr double kBlockCycles = 16, kBlockMs = 20;
constexpr int32_t kMaxBlocks = 16;
// After a change of the set some cycles count for neither side: a draft model ends the pass that it is in.
constexpr double kSettleCycles = 2, kSettleMs = 10, kMaxSettleCycles = 32;
// A difference of so many standard errors is clear; after all blocks one is enough.
constexpr double kClear = 3, kLikely = 1;

void Approach(double value, double* mean) { *mean += kNewest * (value - *mean); }

}  // namespace

void SpeculationPolicy::Speed::Add(double won_ms, double spent_ms) {
  num_cycles += 1;
  won += won_ms;
  spent += spent_ms;
  won_won += won_ms * won_ms;
  won_spent += won_ms * spent_ms;
  spent_spent += spent_ms * spent_ms;
}

// The variance of a ratio of means, by the delta method.
double SpeculationPolicy::Speed::variance() const {
  const double ratio = mean();
  return std::max(0.0, won_won - 2 * ratio * won_spent + ratio * ratio * spent_spent) / (spent * spent);
}

SpeculationPolicy::SpeculationPolicy(size_t num_proposers)
    : all_proposers_(static_cast<uint32_t>((uint64_t{1} << num_proposers) - 1)) {}

double SpeculationPolicy::gain() const {
  const auto situation = situations_.find(key_);
  return situation == situations_.end() ? 1 : situation->second.gain;
}

SpeculationPolicy::Situation& SpeculationPolicy::Enter(const Key& key) {
  const auto found = situations_.find(key);
  if (found != situations_.end()) return found->second;
  const auto last_used = [](const auto& a, const auto& b) { return a.second.last_used < b.second.last_used; };
  if (situations_.size() >= kMaxSituations) situations_.erase(std::ranges::min_element(situations_, last_used));
  Situation situation = {.asked = key.first, .pause_cycles = kPauseCycles};
  std::optional<int32_t> nearest;
  for (const auto& [other, known] : situations_) {
    const int32_t distance = std::abs(other.second - key.second);
    if (other.first != key.first || known.num_trials == 0 || (nearest.has_value() && *nearest <= distance)) continue;
    nearest = distance;
    situation.asked = known.asked;
  }
  return situations_.emplace(key, situation).first->second;
}

StepPolicy SpeculationPolicy::Decide(const SpeculationDemand& demand) {
  ++num_decisions_;
  policy_.is_curious = num_decisions_ % kCuriousEvery == 0;
  if (demand.num_sequences == 0) {
    policy_.waits = policy_.is_trial = false;
    return policy_;
  }
  // Rounded, so that a batch of eight in which one sequence ends now and then stays in its situation.
  const auto load = static_cast<int32_t>(std::lround(std::log2(demand.num_sequences)));
  key_ = {demand.allowed & all_proposers_, std::min(load, kMaxLoad)};
  Situation& situation = Enter(key_);
  situation.last_used = num_decisions_;
  policy_.is_trial = situation.trial.has_value() && demand.may_try;
  const bool tries = policy_.is_trial && situation.trial->is_its_turn;
  const uint32_t proposers = tries ? situation.trial->proposers : situation.asked;
  if (proposers != policy_.proposers) cycles_of_set_ = ms_of_set_ = 0;
  policy_.proposers = proposers;
  // A wait pays where the tokens that guesses win are worth more of a step than the wait costs.
  const bool is_wait_worth_it = situation.gain * policy_.expected_step_ms > situation.wait_ms;
  policy_.waits = proposers != 0 && (policy_.is_curious || policy_.is_trial || is_wait_worth_it);
  return policy_;
}

void SpeculationPolicy::Observe(const CycleOutcome& outcome) {
  policy_.expected_step_ms = outcome.step_ms;
  const auto found = situations_.find(key_);
  if (!outcome.is_comparable || outcome.num_emitted == 0 || found == situations_.end()) return;
  Situation& situation = found->second;
  Approach(outcome.cycle_ms - outcome.step_ms, &policy_.between_ms);
  if (policy_.waits) {
    Approach(outcome.wait_ms, &situation.wait_ms);
    if (outcome.num_roots > 0) Approach(1.0 * outcome.num_guessed / outcome.num_roots, &situation.gain);
  }
  if (policy_.is_trial) {
    Continue(*situation.trial, outcome);
    if (situation.trial->block_cycles >= kBlockCycles && situation.trial->block_ms >= kBlockMs) EndBlock(situation);
  } else if (!situation.trial.has_value()) {
    situation.pause_cycles -= 1;
    situation.pause_ms -= outcome.cycle_ms;
    if (situation.pause_cycles <= 0 && situation.pause_ms <= 0 && key_.first != 0) {
      situation.trial = Trial{.proposers = NextCandidate(situation)};
    }
  }
  cycles_of_set_ += 1;
  ms_of_set_ += outcome.cycle_ms;
}

bool SpeculationPolicy::IsSettled() const {
  return cycles_of_set_ >= kMaxSettleCycles || (cycles_of_set_ >= kSettleCycles && ms_of_set_ >= kSettleMs);
}

void SpeculationPolicy::Continue(Trial& trial, const CycleOutcome& outcome) {
  if (trial.is_its_turn) trial.tried_ms += outcome.cycle_ms;
  if (!IsSettled()) return;
  Speed& speed = trial.is_its_turn ? trial.tried_speed : trial.asked_speed;
  speed.Add(outcome.plain_ms * outcome.num_emitted / outcome.num_drawing, outcome.cycle_ms);
  trial.block_cycles += 1;
  trial.block_ms += outcome.cycle_ms;
}

void SpeculationPolicy::EndBlock(Situation& situation) {
  Trial& trial = *situation.trial;
  trial.block_cycles = trial.block_ms = 0;
  trial.is_its_turn = !trial.is_its_turn;
  if (++trial.num_blocks % 2 != 0) return;
  const double asked = trial.asked_speed.mean(), tried = trial.tried_speed.mean();
  const double error = std::sqrt(trial.asked_speed.variance() + trial.tried_speed.variance());
  if (trial.num_blocks < kMaxBlocks && std::abs(tried - asked) <= kClear * error) return;
  situation.pause_cycles = kPauseCycles;
  situation.pause_ms = kPausePerLoss * trial.tried_ms * std::max(0.0, 1 - tried / asked);
  if (tried - asked > kLikely * error) situation.asked = trial.proposers;
  ++situation.num_trials;
  ++num_trials_;
  last_trial_speedup_ = tried / asked;
  situation.trial.reset();
}

// In turn: none or all, then the asked set with each allowed proposer taken in or left out.
uint32_t SpeculationPolicy::NextCandidate(const Situation& situation) const {
  const uint32_t allowed = key_.first;
  const uint32_t none_or_all = situation.asked != 0 ? 0 : allowed;
  int32_t turn = situation.num_trials % (std::popcount(allowed) + 1);
  for (uint32_t left = allowed; left != 0; left &= left - 1) {
    if (turn-- == 1) {
      const uint32_t toggled = situation.asked ^ (left & (~left + 1));
      return toggled;
    }
  }
  return none_or_all;
}

}  // namespace foretoken::verifier
