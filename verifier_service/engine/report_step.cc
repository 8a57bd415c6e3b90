// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/report_step.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

namespace foretoken::verifier {
namespace {

// The trees there were, and for each of the engine's proposers its place among them.
std::vector<std::optional<uint32_t>> ReportProposers(const Sequence& sequence, StepReport& report) {
  std::vector<std::optional<uint32_t>> places(sequence.guesses.size());
  for (size_t i = 0; i < sequence.guesses.size(); ++i) {
    if (!sequence.guesses[i].has_value()) continue;
    places[i] = static_cast<uint32_t>(report.proposers.size());
    report.proposers.push_back({.name = sequence.proposer_counts[i].proposer,
                                .position = sequence.guess_positions[i].value_or(sequence.guesses[i]->position),
                                .num_nodes = sequence.guesses[i]->num_nodes()});
  }
  return places;
}

uint32_t MovedBits(uint32_t bits, const std::vector<std::optional<uint32_t>>& places) {
  uint32_t moved = 0;
  for (; bits != 0; bits &= bits - 1) {
    const size_t proposer = std::countr_zero(bits);
    if (proposer < places.size() && places[proposer].has_value()) moved |= 1u << *places[proposer];
  }
  return moved;
}

// Chances by node; what the planner had were chances by rank.
std::vector<float> ChancesOfRankedNodes(const PlannedSequence& planned) {
  std::vector<float> chances(planned.guess->nodes.size(), 0);
  const size_t num_ranked = std::min(planned.best_node_idx.size(), planned.path_chances.size());
  for (size_t rank = 0; rank < num_ranked; ++rank) chances[planned.best_node_idx[rank]] = planned.path_chances[rank];
  return chances;
}

void ReportTree(const PlannedSequence& planned, StepReport& report) {
  const std::vector<std::optional<uint32_t>> places = ReportProposers(*planned.sequence, report);
  if (planned.guess == nullptr) return;
  const speculation::TokenTree& guess = *planned.guess;
  const bool is_ranked = planned.rule() == kernels::VerificationRule::kRejectionSampling;
  report.tree.path_chances = is_ranked ? ChancesOfRankedNodes(planned) : planned.path_chances;
  for (const speculation::TreeNode& node : guess.nodes) {
    report.tree.token_ids.push_back(node.token_id);
    report.tree.parents.push_back(node.parent);
    report.tree.chances.push_back(node.chance);
    report.tree.proposers.push_back(MovedBits(node.proposers, places));
  }
  report.tree.planned.resize(guess.nodes.size(), false);
  for (const int32_t node : planned.row_node_idx) report.tree.planned[node] = true;
  for (const int32_t node : speculation::MatchedPath(guess, report.token_ids)) {
    if (!report.tree.planned[node]) break;  // right, but nobody asked
    report.accepted.push_back(node);
  }
}

StepReport MakeReport(const StepSummary& step, const PlannedSequence& planned) {
  const Sequence& sequence = *planned.sequence;
  const std::vector<int32_t>& emitted = sequence.output.token_ids;  // a chunk of the prompt emits nothing
  StepReport report{.step = step,
                    .position = sequence.size() - static_cast<int32_t>(emitted.size()),
                    .num_context_rows = planned.num_chain,
                    .token_ids = emitted,
                    .draws = !emitted.empty()};
  ReportTree(planned, report);
  if (report.draws) report.expected_tokens = ExpectedTokens(planned);
  return report;
}

}  // namespace

void ReportStep(const StepSummary& step, std::span<const PlannedSequence> plan) {
  for (const PlannedSequence& planned : plan) {
    Sequence& sequence = *planned.sequence;
    if (!sequence.request().speculation.reports_steps) continue;
    if (sequence.is_finished && !sequence.output.completion.has_value()) continue;  // failed, and its client knows
    sequence.output.steps.push_back(MakeReport(step, planned));
  }
}

}  // namespace foretoken::verifier
