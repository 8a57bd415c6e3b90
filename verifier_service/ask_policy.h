// SPDX-License-Identifier: Apache-2.0
// Which proposers are asked: each has to earn what asking it costs.
//
// A tree costs more than the rows that the planner gives it: the wait for it, the host's work, and, where a proposer
// computes on the verifier's own machine, cores and memory bandwidth that the step lacks. Nobody can say beforehand how
// much, so it is tried. In a *round* a few plain steps, without tree nodes, are timed with all proposers asked, and a
// few with nobody asked, and, if that makes a difference, with each of them left out in turn. Prompts come and go
// meanwhile, so what is compared is by how much a cycle lasts longer than its rows should take. Of a difference only
// what stands out from the noise counts, for to ask in vain for a while is the smaller mistake. What proposers earn is
// counted while all are asked: accepted tokens, by who had named them. Those are asked then that earn more than they
// cost, the best first, each by the tokens that it adds to those before it: two that guess alike are worth one. And if
// tokens come clearly slower with all of them than with nobody, nobody is asked. The others rest until the next round,
// which begins with a while in which everybody is asked and used.
//
// The longer a round has kept tokens from coming, the later comes the next, so that rounds cost a fiftieth of the time
// at most. All is learned per load (the number of decoding sequences, by powers of two), so that nothing has to be
// learned anew when a spike of load comes and goes.
//
// Example:
//   const AskPolicy::Choice choice = policy.Choose(num_sequences);   // for the coming cycle
//   ...                                                              // the cycle: trees are asked for, a step runs
//   policy.Observe({.cycle_ms = 21, .predicted_ms = 20, .num_emitted = 3, .accepted_by = {0b01, 0b11}});
//
// Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace foretoken::verifier {

// What a cycle brought, from one Choose to the next.
struct CycleOutcome {
  double cycle_ms = 0;
  double predicted_ms = 0;                // of its step, from its rows
  int32_t num_emitted = 0;                // tokens, of all sequences
  std::span<const uint32_t> accepted_by;  // of each accepted token: who had named it; bits, others too
};

class AskPolicy {
 public:
  struct Choice {
    uint32_t proposers = 0;  // bits: who is asked
    bool is_trial = false;   // in a round
    bool is_plain = false;   // the next step has no tree nodes, for its time is compared
  };
  // What is known of a proposer at some load.
  struct Worth {
    bool is_asked = true;
    double gain = 0;     // the part of all tokens that it adds to those asked before it, as of the last round
    double cost_ms = 0;  // of a cycle, that asking it takes at least; a moving mean over rounds
  };

  explicit AskPolicy(size_t num_proposers);

  Choice Choose(int32_t num_sequences);
  // The cycle after the last Choose.
  void Observe(const CycleOutcome& outcome);

  // At the load of the last Choose. [proposers]
  std::span<const Worth> worths() const { return loads_[load_idx_].worths; }
  uint64_t num_rounds() const { return num_rounds_; }

 private:
  static constexpr size_t kNumLoads = 8;  // 1, 2-3, 4-7, ... 128 and more

  struct Load {
    bool is_known = false;
    std::vector<Worth> worths;  // [proposers]
    // Parts of all tokens by who had named them, while everybody was asked; moving means.
    absl::flat_hash_map<uint32_t, double> parts;
    double asked_cycle_ms = 0;  // of those cycles; moving means
    double asked_cycle_tokens = 0;
    int32_t parts_weight = 0;  // how many there were
    double cycle_ms = 0;       // usual ones; moving means
    double cycle_tokens = 0;
    int32_t num_cycles = 0;  // behind them
    int32_t num_rounds = 0;
    int32_t num_usual = 0;  // usual cycles so far, and their time
    double usual_ms = 0;
    int32_t until_round = 0;    // cycles, at least
    double until_round_ms = 0;  // likewise
  };
  enum class Phase { kProbation, kAllAsked, kNobodyAsked, kOneLeftOut };
  struct Round {
    Phase phase = Phase::kProbation;
    size_t left_out = 0;           // with kOneLeftOut
    double all_ms = 0;             // of all phases
    int32_t num_emitted = 0;       // likewise
    int32_t num_plain_tokens = 0;  // likewise
    int32_t num_cycles = 0;
    double elapsed_ms = 0;
    std::vector<double> timed_ms;  // of this phase: cycles, less what their rows should take
    double timed_for_ms = 0;       // together
    std::vector<double> all_asked_ms;
    double nobody_asked_ms = 0;   // of the settled part of that phase
    std::vector<double> cost_ms;  // of the proposers left out so far
  };

  uint32_t AllBits() const { return static_cast<uint32_t>((uint64_t{1} << num_proposers_) - 1); }
  void EnterLoad(size_t load_idx);
  void LearnParts(const CycleOutcome& outcome);
  void Time(const CycleOutcome& outcome);
  void EndPhase();
  void Conclude();
  uint32_t ChooseWorthwhile(Load& load);
  double LostMs(const Load& load) const;

  const size_t num_proposers_;
  std::vector<Load> loads_;
  size_t load_idx_ = 0;
  Choice choice_;  // the last one
  std::optional<Round> round_;
  uint64_t num_rounds_ = 0;
};

}  // namespace foretoken::verifier
