// SPDX-License-Identifier: Apache-2.0
// Decides what the next step does about speculation: which proposers are asked, whether the step waits for their trees,
// and whether the planner takes extra rows to learn what rows cost.
//
// A proposer costs more than the rows of its trees: the step waits for it, the host works for it, and a proposer on the
// verifier's own machine takes cores and memory bandwidth. No model predicts these costs, so the policy measures them.
// It keeps one set of proposers that is asked, and now and then tries another set against it. A trial alternates short
// blocks of cycles with either set and compares their speeds; a cycle lasts from one decision to the next. The speed of
// a set is the time that its tokens and prompts would take without trees, by the cost curve, by the measured time:
//
//   (prompt_ms + (tokens per decoding sequence) * (plain_ms - prompt_ms)) / cycle_ms
//
// so that it does not depend on the number of sequences, nor on prompts that come and go. Guesses win tokens, not
// prompts, so prompts count once. If one cycle of a set is many times as long as its others, it does not count: a
// machine that stands still for a moment says nothing about proposers. The faster set is asked from then on. A trial
// ends when the difference is clear, after some blocks, or, in the first trials, when the slower set has lost a few
// cycles' time.
//
// A proposer that was not asked was told nothing meanwhile. So before a trial compares anything, a set with a new
// proposer is asked for a while in which the proposer catches up.
//
// Trials never stop, so no verdict lasts for good. They take turns: no proposer (or, where none is asked, all of them),
// and then the asked set with each proposer more or less; where one proposer alone is asked, another one alone. The
// first turn of each follows soon. From then on the policy pauses after a trial for a hundred times the time that the
// trial lost, which is meant to keep the cost of trials near one percent. It also pauses for four times the trial's
// cycles.
//
// All of this is kept per situation: the number of sequences that speculate, rounded to a power of two, and the
// proposers that their requests allow, taken together. A new situation starts with the set of the nearest load that has
// had a trial. Without such a load it starts with all allowed proposers, but leaves out every proposer that lost in a
// situation with fewer allowed proposers. If those situations leave nothing to explore, it also starts with the longest
// of their pauses. Until its first trial a situation goes on learning from others in this way.
//
// Example:
//   const StepPolicy policy = speculation.Decide({.num_sequences = 1, .allowed = 0b11});  // for the coming cycle
//   ...                                                               // proposers are asked, a step runs
//   speculation.Observe({.cycle_ms = 25, .step_ms = 22, .plain_ms = 20, .num_decoding = 1, .num_emitted = 3});
//
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace foretoken::verifier {

// The decision for one step.
struct StepPolicy {
  uint32_t proposers = 0;   // a bit per proposer that is asked
  bool waits = false;       // the step waits for the asked proposers' trees
  bool is_trial = false;    // the step belongs to a trial: its time teaches the cost curve nothing
  bool is_curious = false;  // the planner takes rows up to the next count whose cost it does not know
  double between_ms = 0;    // expected time between the passes of two steps
  double between_ms_without_waits = 0;
  double expected_step_ms = 1;  // expected time of the step's forward pass and draw, without prompts
};

// The sequences of the coming step, as far as the decision goes.
struct SpeculationDemand {
  int32_t num_sequences = 0;  // that speculate
  uint32_t allowed = 0;       // a bit per proposer that one of their requests allows
  // False: all of them ask their proposers in any case, so all sets are the same. A trial goes on later.
  bool may_try = true;
};

// A cycle: from one Decide to the next.
struct CycleOutcome {
  double cycle_ms = 0;
  double step_ms = 0;        // of that, the forward pass and the draw
  double plain_ms = 0;       // what the cost curve predicts for the step without its tree nodes
  double prompt_ms = 0;      // of plain_ms, for prompts
  double wait_ms = 0;        // of cycle_ms, for proposals
  int32_t num_decoding = 0;  // sequences that decode: without guesses each emits one token
  int32_t num_emitted = 0;   // their tokens
  int32_t num_roots = 0;     // sequences that proposers know
  int32_t num_guessed = 0;   // tokens that some tree had right
  int32_t num_trees = 0;     // sequences with nodes in the step: all others emitted exactly one token
  // False: the cycle says nothing about proposers, or its begin is not known. Only step_ms is read.
  bool is_comparable = true;
};

class SpeculationPolicy {
 public:
  // Bits from num_proposers on are ignored.
  explicit SpeculationPolicy(size_t num_proposers);

  StepPolicy Decide(const SpeculationDemand& demand);
  // The cycle since the last Decide. Nothing is learned from one in which no sequence decoded.
  void Observe(const CycleOutcome& outcome);

  // For statistics.
  uint32_t asked() const { return policy_.proposers; }
  double gain() const;  // tokens that guesses win per sequence and step, lately
  uint64_t num_trials() const { return num_trials_; }
  double last_trial_speedup() const { return last_trial_speedup_; }  // speed of the tried set by that of the asked one

 private:
  // Sums over cycles of two numbers: won, the plain time that the emitted tokens are worth, and spent, the cycle's
  // time. The pace is time spent per time won, the inverse of the speed: one cycle that takes very long raises the
  // mean and its variance alike, so it cannot look like a clear difference.
  struct Pace {
    double num_cycles = 0, won = 0, spent = 0, won_won = 0, won_spent = 0, spent_spent = 0, text = 0;
    double longest = 0, won_in_longest = 0;  // the cycle that took longest

    // `text_variance` is the relative variance that texts add to this cycle's tokens.
    void Add(double won_ms, double spent_ms, double text_variance);
    double mean() const { return spent / won; }
    double variance() const;  // of the mean
    // Without the cycle that took longest, if it took many times as long as the others.
    double usual_mean() const;
    bool has_outlier() const;
    double usual_ms(double ms) const { return has_outlier() ? ms - longest : ms; }
  };
  // Whether a wait for a set's trees pays.
  struct Waits {
    double gain = 1;  // tokens that guesses win per sequence, a moving mean over steps that waited
    double ms = 0;    // of such a wait, likewise

    void Observe(const CycleOutcome& outcome);
  };
  struct Pause {
    double cycles = 0, ms = 0;  // until the next trial, both at least
  };
  struct Trial {
    uint32_t proposers = 0;  // the set that is tried
    bool is_catching_up = false;
    bool is_its_turn = true;  // in this block; else the asked set has its turn
    int32_t num_blocks = 0;   // that have ended
    double num_cycles = 0;    // of the whole trial
    double block_cycles = 0, block_ms = 0;
    double tried_ms = 0, asked_ms = 0;  // with this set asked, and with the other
    Pace asked_pace, tried_pace;
    Waits waits;
  };
  struct Situation {
    uint32_t asked = 0;
    std::optional<Trial> trial;
    bool has_tried = false;               // a trial has ended with a comparison
    int32_t turn = 0;                     // of the next candidate
    int32_t num_to_explore = 0;           // trials that come without a long pause
    double cycles_owed = 0, ms_owed = 0;  // cycles of trials, and lost time, that no pause has made up for
    Pause pause, paused;                  // the length of the pause, and how much of it has passed
    Waits waits;
    uint64_t last_used = 0;
  };
  using Key = std::pair<uint32_t, int32_t>;  // the allowed proposers, the load

  Situation& Enter(const Key& key);
  Situation Begin(const Key& key) const;
  uint32_t NextCandidate(const Situation& situation) const;
  Trial BeginTrial(const Situation& situation) const;
  void Continue(Situation& situation, const CycleOutcome& outcome);
  void EndBlock(Situation& situation);
  void GiveUp(Situation& situation);
  void EndTrial(Situation& situation, double lost_ms);
  void InformUntried();
  bool IsSettled() const;

  const uint32_t all_proposers_;
  std::map<Key, Situation> situations_;
  Key key_ = {0, 0};  // of the last Decide
  StepPolicy policy_;
  double cycles_of_set_ = 0, ms_of_set_ = 0;  // since the asked proposers last changed
  uint64_t num_decisions_ = 0;
  uint64_t num_trials_ = 0;
  double last_trial_speedup_ = 1;
};

}  // namespace foretoken::verifier
