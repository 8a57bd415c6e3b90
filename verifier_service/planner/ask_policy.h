// SPDX-License-Identifier: Apache-2.0
// Which proposers are asked: each has to earn what asking it costs.
//
// A tree costs more than the rows that the planner gives it: the wait for it, the host's work, and, where a proposer
// computes on the verifier's own machine, cores and memory bandwidth that the step lacks. Nobody can say beforehand how
// much, so it is tried. In a *round* a few plain steps, without tree nodes, are timed with all proposers asked, and a
// few with nobody asked, and, if that makes a difference, with each of them left out in turn. Prompts come and go
// meanwhile, so what is compared is by how much a cycle lasts longer than its rows should take; of that, what stands
// out from the noise is the cost of a proposer.
//
// What they earn is counted while all are asked: accepted tokens, by who had named them. Two that guess alike are worth
// one. From all this follows the speed of any set of proposers, in tokens per time relative to plain decoding as the
// cost curve has it, so that it does not matter how many sequences there were, or prompts. There rows are shared by
// what each won, and what cannot be explained is put down to those who are known to cost something. The best set is
// asked, grown by one at a time as long as it does not become slower; what has been seen of a set is believed more than
// what follows. The others rest until the next round, which begins with a while in which everybody is asked and used.
//
// The longer a round has kept tokens from coming, the later comes the next, so that rounds cost a fiftieth of the time
// at most. All is learned per load: one, two, about four, about eight decoding sequences and so on. So nothing has to
// be learned anew when a spike of load comes and goes. A round goes on when its load comes back, and until a load has
// had one, what is right at the nearest load that has is done there.
//
// Example:
//   const AskPolicy::Choice choice = policy.Choose(num_sequences);   // for the coming cycle
//   ...                                                              // the cycle: trees are asked for, a step runs
//   policy.Observe({.cycle_ms = 25, .predicted_ms = 23, .plain_ms = 20, .num_drawing = 1, .num_emitted = 3, ...});
//
// Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace foretoken::verifier {

// What a cycle brought, from one Choose to the next. The cost curve's times are of its step alone.
struct CycleOutcome {
  double cycle_ms = 0;
  double predicted_ms = 0;                // by the cost curve, from the step's rows
  double plain_ms = 0;                    // likewise, without the tree nodes
  int32_t num_drawing = 0;                // sequences that drew: so many tokens come without any guess
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
    double gain = 0;     // the part of all tokens that it adds to those who are asked first, as of the last round
    double cost_ms = 0;  // of a cycle, that asking it takes at least; a moving mean over rounds
  };

  // Whether the coming cycle can be one of a round. Where a request is in it that asks in any case, it cannot: nobody
  // would observe it, and the round would never end. A round that pauses goes on later.
  enum class Trials { kGoOn, kPause };

  explicit AskPolicy(size_t num_proposers);

  Choice Choose(int32_t num_sequences, Trials trials = Trials::kGoOn);
  // The cycle after the last Choose. Cycles with requests that ask in any case are not told.
  void Observe(const CycleOutcome& outcome);

  // At the load of the last Choose. [proposers]
  std::span<const Worth> worths() const { return loads_[load_idx_].worths; }
  uint64_t num_rounds() const { return num_rounds_; }

 private:
  static constexpr size_t kNumLoads = 8;

  // Sums over cycles.
  struct Pace {
    double num_cycles = 0;
    double cycle_ms = 0;
    double predicted_ms = 0;
    double plain_ms = 0;
    double num_drawing = 0;
    double num_emitted = 0;

    void Add(const CycleOutcome& outcome);
    void Fade(double kept_part);
    // Tokens per time, relative to plain decoding that takes as long as its rows alone.
    double speed() const { return num_emitted / num_drawing * plain_ms / cycle_ms; }
  };
  enum class Phase { kProbation, kAllAsked, kNobodyAsked, kOneLeftOut };
  struct Round {
    Phase phase = Phase::kProbation;
    // Of this phase:
    int32_t num_cycles = 0;
    double elapsed_ms = 0;
    std::vector<double> timed_ms;  // settled cycles, less what their rows should take
    Pace timed;                    // the same cycles, whole
    // Of all phases so far:
    Pace all;
    std::vector<double> all_asked_ms;  // timed_ms of that phase
    Pace nobody_asked;                 // timed of that phase
    std::vector<double> cost_ms;       // of the proposers left out so far; the next one is left out now
  };
  struct Load {
    std::vector<Worth> worths;                      // [proposers]
    absl::flat_hash_map<uint32_t, Pace> paces;      // by who is asked, of cycles with trees, fading
    absl::flat_hash_map<uint32_t, double> num_won;  // tokens, by who had named them, of the cycles of paces[AllBits()]
    int32_t num_rounds = 0;
    // Of usual cycles, which are in no round:
    int32_t num_cycles = 0;
    double elapsed_ms = 0;
    int32_t until_round = 0;     // at least
    double until_round_ms = 0;   // likewise
    std::optional<Round> round;  // the one that is on
  };

  uint32_t AllBits() const { return static_cast<uint32_t>((uint64_t{1} << num_proposers_) - 1); }
  static uint32_t AskedBits(const Load& load);
  void EnterLoad(size_t load_idx);
  void Learn(const CycleOutcome& outcome);
  void FadeAll(Load& load, double kept_part) const;
  void AwaitRound(const CycleOutcome& outcome);
  void Time(const CycleOutcome& outcome);
  void EndPhase();
  void Conclude();
  double NumWonBy(const Load& load, uint32_t proposers) const;
  double SpeedOf(const Load& load, uint32_t proposers) const;
  uint32_t ChooseFastest(Load& load) const;  // sets the gains
  double LostMs(const Load& load) const;

  const size_t num_proposers_;
  std::vector<Load> loads_;
  size_t load_idx_ = 0;
  Choice choice_;                     // the last one
  int32_t num_cycles_of_choice_ = 0;  // since it became what it is
  double ms_of_choice_ = 0;
  uint64_t num_rounds_ = 0;
};

}  // namespace foretoken::verifier
