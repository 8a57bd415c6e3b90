// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/planner/speculation_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace foretoken::verifier {
namespace {

// The weight of the newest value in a moving mean.
constexpr double kNewest = 0.1;
// Every so many steps the planner checks a row count whose cost it does not know.
constexpr uint64_t kCuriousEvery = 32;
// Loads are 1, 2, 4 and so on sequences, up to 128. A server has few situations; the bound is for hostile requests.
constexpr int32_t kMaxLoad = 7;
constexpr size_t kMaxSituations = 64;
// A cycle that takes so much longer than its step says nothing about proposers: the process was stopped.
constexpr double kStallFactor = 50, kLeastStallMs = 100;
// One cycle of a trial's side that takes so many times as long as its others does not count either.
constexpr double kOutlierFactor = 5;
// Before the first trial the chances are learned. Later pauses are at least as long, and longer after a long trial or
// one that lost time.
constexpr double kPauseCycles = 64, kPausePerTrialCycle = 4, kPausePerLoss = 100, kMaxPauseMs = 600'000;
// While a situation explores, a trial also ends once the slower set has lost about so much, the longer of the two: a
// server that knows nothing yet must not be slow for as long as a sure verdict takes. Pauses between these trials are
// shorter.
constexpr double kExploringLossCycles = 8, kExploringLossMs = 100, kExploringPausePerLoss = 10;
// A proposer that is asked anew catches up for so many cycles, or so long, but for a few cycles at least.
constexpr double kLeastCatchUpCycles = 16, kCatchUpCycles = 64, kCatchUpMs = 1000;
// A block of a trial. Cycles without guesses all emit as much, so a few of them suffice. After all blocks the speed of
// a set is known to about 4 % for one sequence: with a third of the blocks, on a model with experts, a server kept a
// set that made texts 5 % slower.
constexpr double kBlockCycles = 16, kBlockCyclesWithoutGuesses = 4, kBlockMs = 20;
constexpr int32_t kMaxBlocks = 48;
// A trial is given up whose situation comes and goes: if it has no block after so many cycles, if it has so many cycles
// in all, or after so many steps of others.
constexpr double kMaxCyclesToFirstBlock = 600, kMaxTrialCycles = 2000;
constexpr uint64_t kMaxAbsence = 2000;
// After a change of the set some cycles count for neither side: a draft model ends the pass that it is in.
constexpr double kSettleCycles = 2, kSettleMs = 10, kMaxSettleCycles = 32;
// A difference of so many standard errors is clear. After all blocks the faster set wins.
constexpr double kClear = 2.5;
// Texts have stretches that are easy to guess and others, each longer than a block. So cycles with guesses are not
// independent: this much is added to the relative variance of a cycle of one sequence with a tree. Estimated from
// trials on sampled texts of the demo model. Without a tree a sequence emits one token, whatever its text: where rows
// are dear, few steps have trees, and a trial soon knows what its proposers cost.
constexpr double kTextVariance = 0.7;

// No proposer or all of them, and each more or less.
int32_t NumTurns(uint32_t allowed) {
  const int32_t num_allowed = std::popcount(allowed);
  return num_allowed == 1 ? 1 : num_allowed + 1;
}

void Approach(double value, double* mean) { *mean += kNewest * (value - *mean); }

}  // namespace

void SpeculationPolicy::Pace::Add(double won_ms, double spent_ms, double text_variance) {
  num_cycles += 1;
  won += won_ms;
  spent += spent_ms;
  won_won += won_ms * won_ms;
  won_spent += won_ms * spent_ms;
  spent_spent += spent_ms * spent_ms;
  text += text_variance;
  if (spent_ms <= longest) return;
  longest = spent_ms;
  won_in_longest = won_ms;
}

// The variance of a ratio of means, by the delta method, with what texts add to it.
double SpeculationPolicy::Pace::variance() const {
  const double ratio = mean();
  const double apart = std::max(0.0, spent_spent - 2 * ratio * won_spent + ratio * ratio * won_won) / (won * won);
  return apart + ratio * ratio * text / (num_cycles * num_cycles);
}

bool SpeculationPolicy::Pace::has_outlier() const {
  return num_cycles > 1 && longest > kOutlierFactor * (spent - longest) / (num_cycles - 1);
}

double SpeculationPolicy::Pace::usual_mean() const {
  return has_outlier() ? (spent - longest) / (won - won_in_longest) : mean();
}

SpeculationPolicy::SpeculationPolicy(size_t num_proposers)
    : all_proposers_(static_cast<uint32_t>((uint64_t{1} << num_proposers) - 1)) {}

double SpeculationPolicy::gain() const {
  const auto situation = situations_.find(key_);
  return policy_.proposers == 0 || situation == situations_.end() ? 0 : situation->second.waits.gain;
}

void SpeculationPolicy::Waits::Observe(const CycleOutcome& outcome) {
  Approach(outcome.wait_ms, &ms);
  if (outcome.num_roots > 0) Approach(1.0 * outcome.num_guessed / outcome.num_roots, &gain);
}

SpeculationPolicy::Situation& SpeculationPolicy::Enter(const Key& key) {
  const auto found = situations_.find(key);
  if (found != situations_.end()) return found->second;
  const auto last_used = [](const auto& a, const auto& b) { return a.second.last_used < b.second.last_used; };
  if (situations_.size() >= kMaxSituations) situations_.erase(std::ranges::min_element(situations_, last_used));
  return situations_.emplace(key, Begin(key)).first->second;
}

// What other situations have found out saves trials of the same.
SpeculationPolicy::Situation SpeculationPolicy::Begin(const Key& key) const {
  const auto& [allowed, load] = key;
  Situation situation = {.asked = allowed, .num_to_explore = NumTurns(allowed), .pause = {.cycles = kPauseCycles}};
  std::optional<int32_t> nearest;
  for (const auto& [other, known] : situations_) {
    const int32_t distance = std::abs(other.second - load);
    if (other.first != allowed || !known.has_tried || (nearest.has_value() && *nearest <= distance)) continue;
    nearest = distance;
    situation.asked = known.asked;
    situation.num_to_explore = 0;
  }
  if (nearest.has_value()) return situation;
  // A proposer that is not worth asking among fewer is not worth asking among more.
  uint32_t known_proposers = 0;
  Pause pause = situation.pause;
  for (const auto& [other, known] : situations_) {
    if (other.second != load || (other.first & ~allowed) != 0 || !known.has_tried) continue;
    situation.asked &= ~(other.first & ~known.asked);
    known_proposers |= other.first;
    pause = {.cycles = std::max(pause.cycles, known.pause.cycles), .ms = std::max(pause.ms, known.pause.ms)};
  }
  // Proposers that are worth asking each for itself may not be so together: that is tried soon.
  if (known_proposers == allowed && std::popcount(situation.asked) <= 1) {
    situation.num_to_explore = 0;
    situation.pause = pause;
  }
  return situation;
}

StepPolicy SpeculationPolicy::Decide(const SpeculationDemand& demand) {
  ++num_decisions_;
  const bool is_turn_of_curiosity = num_decisions_ % kCuriousEvery == 0;
  policy_.is_curious = is_turn_of_curiosity;
  policy_.waits = policy_.is_trial = false;
  if (demand.num_sequences == 0) return policy_;
  // Rounded, so that a batch of eight in which one sequence ends now and then stays in its situation.
  const auto load = static_cast<int32_t>(std::lround(std::log2(demand.num_sequences)));
  key_ = {demand.allowed & all_proposers_, std::min(load, kMaxLoad)};
  Situation& situation = Enter(key_);
  if (situation.trial.has_value() && num_decisions_ - situation.last_used > kMaxAbsence) GiveUp(situation);
  situation.last_used = num_decisions_;
  policy_.is_trial = situation.trial.has_value() && demand.may_try;
  const bool tries = policy_.is_trial && situation.trial->is_its_turn;
  const uint32_t proposers = tries ? situation.trial->proposers : situation.asked;
  if (proposers != policy_.proposers) cycles_of_set_ = ms_of_set_ = 0;
  policy_.proposers = proposers;
  policy_.is_curious = is_turn_of_curiosity && !policy_.is_trial;
  // A wait pays where the tokens that guesses win are worth more of a step than the wait costs.
  const Waits& waits = tries ? situation.trial->waits : situation.waits;
  policy_.waits = proposers != 0 && (is_turn_of_curiosity || waits.gain * policy_.expected_step_ms > waits.ms);
  return policy_;
}

void SpeculationPolicy::Observe(const CycleOutcome& outcome) {
  if (outcome.num_decoding > 0) policy_.expected_step_ms = std::max(0.0, outcome.step_ms - outcome.prompt_ms);
  const auto found = situations_.find(key_);
  if (outcome.num_emitted == 0 || found == situations_.end()) return;
  Situation& situation = found->second;
  const bool tried = policy_.is_trial && situation.trial->is_its_turn;
  if (policy_.waits) (tried ? situation.trial->waits : situation.waits).Observe(outcome);
  const bool is_stall = outcome.cycle_ms > kStallFactor * outcome.plain_ms && outcome.cycle_ms > kLeastStallMs;
  if (!outcome.is_comparable || is_stall) return;
  Approach(outcome.cycle_ms - outcome.step_ms, &policy_.between_ms);
  Approach(outcome.cycle_ms - outcome.step_ms - outcome.wait_ms, &policy_.between_ms_without_waits);
  if (policy_.is_trial) {
    Continue(situation, outcome);
  } else if (!situation.trial.has_value()) {
    situation.paused.cycles += 1;
    situation.paused.ms += outcome.cycle_ms;
    const bool is_over = situation.paused.cycles >= situation.pause.cycles && situation.paused.ms >= situation.pause.ms;
    if (is_over && key_.first != 0) situation.trial = BeginTrial(situation);
  }
  cycles_of_set_ += 1;
  ms_of_set_ += outcome.cycle_ms;
}

bool SpeculationPolicy::IsSettled() const {
  return cycles_of_set_ >= kMaxSettleCycles || (cycles_of_set_ >= kSettleCycles && ms_of_set_ >= kSettleMs);
}

SpeculationPolicy::Trial SpeculationPolicy::BeginTrial(const Situation& situation) const {
  const uint32_t candidate = NextCandidate(situation);
  Trial trial = {.proposers = candidate, .is_catching_up = (candidate & ~situation.asked) != 0};
  if (candidate != 0 && situation.asked != 0) trial.waits = situation.waits;
  return trial;
}

void SpeculationPolicy::Continue(Situation& situation, const CycleOutcome& outcome) {
  Trial& trial = *situation.trial;
  (trial.is_its_turn ? trial.tried_ms : trial.asked_ms) += outcome.cycle_ms;
  trial.num_cycles += 1;
  if (trial.num_cycles > (trial.num_blocks == 0 ? kMaxCyclesToFirstBlock : kMaxTrialCycles)) return GiveUp(situation);
  if (trial.is_catching_up) {
    const bool is_long = cycles_of_set_ >= kCatchUpCycles || ms_of_set_ >= kCatchUpMs;
    trial.is_catching_up = !is_long || cycles_of_set_ < kLeastCatchUpCycles;
    return;
  }
  if (!IsSettled()) return;
  Pace& pace = trial.is_its_turn ? trial.tried_pace : trial.asked_pace;
  const double decode_ms = outcome.plain_ms - outcome.prompt_ms;
  pace.Add(outcome.prompt_ms + decode_ms * outcome.num_emitted / outcome.num_decoding, outcome.cycle_ms,
           kTextVariance * outcome.num_trees / (1.0 * outcome.num_decoding * outcome.num_decoding));
  trial.block_cycles += 1;
  trial.block_ms += outcome.cycle_ms;
  const bool has_guesses = policy_.proposers != 0 || outcome.num_trees > 0;  // some requests ask in any case
  const double enough = has_guesses ? kBlockCycles : kBlockCyclesWithoutGuesses;
  if (trial.block_cycles >= enough && trial.block_ms >= kBlockMs) EndBlock(situation);
}

void SpeculationPolicy::EndBlock(Situation& situation) {
  Trial& trial = *situation.trial;
  trial.block_cycles = trial.block_ms = 0;
  trial.is_its_turn = !trial.is_its_turn;
  if (++trial.num_blocks % 2 != 0) return;
  const double asked = trial.asked_pace.usual_mean(), tried = trial.tried_pace.usual_mean();
  const double error = std::sqrt(trial.asked_pace.variance() + trial.tried_pace.variance());
  const bool is_clear = std::abs(tried - asked) > kClear * error;
  const bool has_won = tried < asked;
  const double lost_ms = has_won ? trial.asked_pace.usual_ms(trial.asked_ms) * (1 - tried / asked)
                                 : trial.tried_pace.usual_ms(trial.tried_ms) * (1 - asked / tried);
  const double cycle_ms = (trial.tried_ms + trial.asked_ms) / trial.num_cycles;
  const bool has_lost_enough =
      situation.num_to_explore > 0 && lost_ms > std::max(kExploringLossMs, kExploringLossCycles * cycle_ms);
  if (!is_clear && !has_lost_enough && trial.num_blocks < kMaxBlocks) return;
  last_trial_speedup_ = asked / tried;
  situation.has_tried = true;
  if (has_won) {
    situation.asked = trial.proposers;
    situation.waits = trial.waits;
  }
  EndTrial(situation, lost_ms);
  situation.turn = has_won ? 1 : situation.turn + 1;
  InformUntried();
}

// Nothing is known of the tried set, so all of its time counts as lost.
void SpeculationPolicy::GiveUp(Situation& situation) {
  EndTrial(situation, situation.trial->tried_ms);
  situation.turn += 1;
}

void SpeculationPolicy::EndTrial(Situation& situation, double lost_ms) {
  ++num_trials_;
  situation.cycles_owed += situation.trial->num_cycles;
  situation.ms_owed += lost_ms;
  situation.trial.reset();
  situation.paused = {};
  situation.pause = {.cycles = kPauseCycles, .ms = kExploringPausePerLoss * lost_ms};
  if (--situation.num_to_explore > 0) return;
  situation.pause.cycles += kPausePerTrialCycle * std::exchange(situation.cycles_owed, 0);
  situation.pause.ms = std::min(kMaxPauseMs, kPausePerLoss * std::exchange(situation.ms_owed, 0));
}

// A verdict may tell a situation without a trial to begin with other proposers.
void SpeculationPolicy::InformUntried() {
  for (auto& [key, untried] : situations_) {
    if (untried.has_tried || untried.trial.has_value()) continue;
    Situation begun = Begin(key);
    if (begun.asked == untried.asked) continue;
    begun.last_used = untried.last_used;
    untried = begun;
  }
}

// In turn: none or all, then the asked set with each allowed proposer taken in or left out.
uint32_t SpeculationPolicy::NextCandidate(const Situation& situation) const {
  const uint32_t allowed = key_.first;
  const auto nth = [allowed](int32_t n) {
    uint32_t left = allowed;
    for (; n > 0; --n) left &= left - 1;
    return left & -left;
  };
  const int32_t num_turns = NumTurns(allowed), num_allowed = std::popcount(allowed);
  const int32_t turn = situation.turn % num_turns;
  if (turn == 0) return situation.asked != 0 ? 0 : allowed;
  const uint32_t toggled = situation.asked ^ nth(turn - 1);
  if (toggled != 0) return toggled;
  // The set would be empty, which turn 0 tries. Another proposer alone may not be reached by way of a good pair.
  const int32_t others_turn = situation.turn / num_turns % (num_allowed - 1);
  return nth((turn + others_turn) % num_allowed);
}

}  // namespace foretoken::verifier
