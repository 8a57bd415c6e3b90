// SPDX-License-Identifier: Apache-2.0
// What the engine says to proposers and hears from them: who is asked for how much, how long answers are waited for,
// and what is learned of all that.
#include <algorithm>
#include <utility>

#include "kernels/check.h"
#include "verifier_service/engine/engine.h"

namespace foretoken::verifier {
namespace {

// Every so many steps the planner looks where its memory may be wrong.
constexpr uint64_t kCuriousEvery = 32;
// Weight of the newest value in the moving means.
constexpr double kNewest = 0.1;
// A wait for proposals ends after this part of a step.
constexpr double kMaxWaitPart = 0.25;
// How many nodes proposers are asked for, from how many are taken.
constexpr int32_t kSpareNodes = 4;
constexpr float kSparePart = 1.5f;
constexpr float kKeptNodes = 0.9f;  // of the usual number, in a step that takes fewer

}  // namespace

void Engine::OpenAtProposers(Sequence& sequence) {
  const GenerationRequest& request = sequence.request();
  parts_.proposers->Open({.sequence_id = sequence.id,
                          .token_ids = sequence.token_ids,
                          .rule = request.verification,
                          .seed = sequence.sampling.seed,
                          .sample_index = sequence.sampling.sample_index,
                          .temperature = sequence.sampling.temperature,
                          .top_k = sequence.sampling.top_k,
                          .top_p = sequence.sampling.top_p,
                          .min_p = sequence.sampling.min_p,
                          .tenant = request.tenant,
                          .traceparent = request.traceparent,
                          .proposers = sequence.active->allowed_proposers,
                          .told_proposers = AskedOf(sequence)});
  sequence.is_open = true;
}

void Engine::Gather() {
  own_stats_.times.host_ms += ElapsedMs();
  for (Proposal& proposal : parts_.proposers->TakeProposals(Patience())) {
    FT_CHECK(speculation::HasParentsFirst(proposal.tree));  // a step walks parents without looking at them again
    const auto sequence = sequences_.find(proposal.sequence_id);
    if (sequence == sequences_.end()) continue;                                              // it ended meanwhile
    if (proposal.tree.position > static_cast<uint64_t>(sequence->second->size())) continue;  // about tokens never said
    sequence->second->guess_positions[proposal.proposer_idx] = proposal.tree.position;
    sequence->second->guesses[proposal.proposer_idx] = std::move(proposal.tree);
  }
  const double wait_ms = ElapsedMs();
  own_stats_.times.wait_ms += wait_ms;
  if (waits_for_proposals_) ++own_stats_.planner.num_waits;
  if (waits_for_proposals_) wait_cost_ms_ += kNewest * (wait_ms - wait_cost_ms_);
}

void Engine::TakeStock(const PlannedSequence& planned, std::span<const int32_t> path_nodes) {
  if (planned.sequence->is_open) ++cycle_.num_roots;
  if (planned.guess != nullptr) cycle_.num_guessed += Learn(planned, planned.committed());
  if (!asked_.is_plain) {
    float& usual = planned.sequence->usual_nodes;
    usual = std::max(planned.NumNodesPlanned(), kKeptNodes * usual);
  }
  cycle_.num_emitted += static_cast<int32_t>(path_nodes.size());
  for (const int32_t row : path_nodes) {
    if (row > 0) cycle_.accepted_by.push_back(planned.tree.nodes[row - 1].proposers);  // row 0 is the root's own
  }
}

void Engine::EndCycle(std::span<const PlannedSequence> plan) {
  own_stats_.num_generated_tokens += cycle_.num_emitted;
  const absl::Time now = parts_.now();
  const auto is_asked_always = [](const Sequence& sequence) {
    return sequence.is_open && sequence.request().speculation.mode == SpeculationMode::kAlways;
  };
  // Steps of sequences without speculation say nothing about proposers, and those of sequences that ask in any case
  // nothing about what asking is worth.
  const bool is_ours = cycle_.num_roots > 0 && std::none_of(plan.begin(), plan.end(), [&](const auto& planned) {
                         return is_asked_always(*planned.sequence);
                       });
  if (cycle_began_.has_value() && is_ours) {
    const double cycle_ms = absl::ToDoubleMilliseconds(now - *cycle_began_);
    between_ms_ += kNewest * (cycle_ms - last_step_ms_ - between_ms_);
    ask_policy_.Observe({.cycle_ms = cycle_ms,
                         .predicted_ms = forecast_.step_ms,
                         .plain_ms = forecast_.step_ms_without_trees,
                         .num_drawing = forecast_.num_emitting,
                         .num_emitted = cycle_.num_emitted,
                         .accepted_by = cycle_.accepted_by});
  }
  cycle_began_ = now;
  if (waits_for_proposals_ && cycle_.num_roots > 0 && !asked_.is_plain) {
    gain_ += kNewest * (static_cast<double>(cycle_.num_guessed) / cycle_.num_roots - gain_);
  }
  cycle_ = {};

  const auto guesses = [](const auto& sequence) { return sequence->is_open && !sequence->is_finished; };
  const auto num_guessing =
      static_cast<int32_t>(std::count_if(scheduler_.running().begin(), scheduler_.running().end(), guesses));
  const bool is_mixed =
      std::any_of(scheduler_.running().begin(), scheduler_.running().end(),
                  [&](const auto& sequence) { return !sequence->is_finished && is_asked_always(*sequence); });
  using enum AskPolicy::Trials;
  if (num_guessing > 0) asked_ = ask_policy_.Choose(num_guessing, is_mixed ? kPause : kGoOn);
  is_curious_ = ++step_idx_ % kCuriousEvery == 0;
  // To wait pays where the tokens that guesses win are worth more of a step than the wait costs.
  const bool is_wait_worth_it = is_curious_ || asked_.is_trial || gain_ * last_step_ms_ > wait_cost_ms_;
  waits_for_proposals_ = num_guessing > 0 && asked_.proposers != 0 && is_wait_worth_it;
}

absl::Duration Engine::Patience() const {
  return waits_for_proposals_ ? absl::Milliseconds(kMaxWaitPart * last_step_ms_) : absl::ZeroDuration();
}

int32_t Engine::NodesToAskFor(const Sequence& sequence) {
  const int32_t max_nodes = sequence.active->max_tree_nodes;
  if (sequence.request().speculation.mode == SpeculationMode::kAlways) return max_nodes;
  // Some more than the planner is going to take, so that it has a choice and can take more. A proposer grows first what
  // it is about to send and what may follow it, so what is sent in vain is grown in vain.
  return std::min(max_nodes, kSpareNodes + static_cast<int32_t>(kSparePart * sequence.usual_nodes));
}

uint32_t Engine::AskedOf(const Sequence& sequence) const {
  return sequence.request().speculation.mode == SpeculationMode::kAlways ? ~0u : asked_.proposers;
}

void Engine::AdvanceProposers(std::span<const PlannedSequence> plan) {
  for (const PlannedSequence& planned : plan) {
    const Sequence& sequence = *planned.sequence;
    if (!sequence.is_open || planned.num_committed == 0) continue;
    Ask ask;  // of a finished sequence nobody is asked
    if (!sequence.is_finished) ask = {.node_budget = NodesToAskFor(sequence), .proposers = AskedOf(sequence)};
    parts_.proposers->Advance(sequence.id, planned.committed(), ask);
  }
}

int32_t Engine::Learn(const PlannedSequence& planned, std::span<const int32_t> committed) {
  if (planned.rule() == kernels::VerificationRule::kKeyedDraw) return calibration_.Observe(*planned.guess, committed);
  std::vector<int32_t> ranks;
  const std::vector<int32_t> path = speculation::MatchedPath(*planned.guess, committed);
  for (const int32_t node : path) {
    const auto best = std::find(planned.best_node_idx.begin(), planned.best_node_idx.end(), node);
    if (best != planned.best_node_idx.end())
      ranks.push_back(static_cast<int32_t>(best - planned.best_node_idx.begin()));
  }
  rank_chances_.Observe(planned.row_budget, ranks);
  return static_cast<int32_t>(path.size());
}

}  // namespace foretoken::verifier
