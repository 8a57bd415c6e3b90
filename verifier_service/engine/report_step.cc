// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/report_step.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>
#include <variant>

#include "verifier_service/engine/step_forecast.h"

namespace foretoken::verifier {
namespace {

// Adds the proposers that had a tree to the report. Returns each proposer's index in the report; unset without a tree.
std::vector<std::optional<uint32_t>> ReportProposers(const Sequence& sequence, StepReport& report) {
  std::vector<std::optional<uint32_t>> places(sequence.guesses.size());
  for (size_t i = 0; i < sequence.guesses.size(); ++i) {
    if (!sequence.guesses[i].has_value()) continue;
    places[i] = static_cast<uint32_t>(report.proposers.size());
    // The trees of the request's prediction and grammar have no origin, and are never new.
    const GuessOrigin origin =
        sequence.guess_origins[i].value_or(GuessOrigin{.position = sequence.guesses[i]->position, .is_reported = true});
    report.proposers.push_back({.name = sequence.proposer_counts[i].proposer,
                                .position = origin.position,
                                .num_nodes = sequence.guesses[i]->num_nodes(),
                                .num_predicted_features = origin.num_predicted_features,
                                .is_new = !origin.is_reported,
                                .asked = origin.asked,
                                .arrived = origin.arrived});
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

// Converts the planner's chances by place to chances by node.
std::vector<float> ChancesOfRankedNodes(const TestedChoice& choice, size_t num_nodes) {
  std::vector<float> chances(num_nodes, 0);
  const size_t num_placed = std::min(choice.best_node_idx.size(), choice.place_chances.size());
  for (size_t place = 0; place < num_placed; ++place) {
    chances[choice.best_node_idx[place]] = choice.place_chances[place];
  }
  return chances;
}

std::vector<float> ChancesOf(const PlannedTree& tree) {
  const auto* tested = std::get_if<TestedChoice>(&tree.choice);
  if (tested != nullptr) return ChancesOfRankedNodes(*tested, tree.guess->nodes.size());
  return std::get<KeyedChoice>(tree.choice).path_chances;
}

void ReportTree(const PlannedSequence& planned, StepReport& report) {
  const std::vector<std::optional<uint32_t>> places = ReportProposers(*planned.sequence, report);
  if (planned.tree.guess == nullptr) return;
  const speculation::TokenTree& guess = *planned.tree.guess;
  report.tree.path_chances = ChancesOf(planned.tree);
  for (const speculation::TreeNode& node : guess.nodes) {
    report.tree.token_ids.push_back(node.token_id);
    report.tree.parents.push_back(node.parent);
    report.tree.chances.push_back(node.chance);
    report.tree.proposers.push_back(MovedBits(node.proposers, places));
  }
  report.tree.planned.resize(guess.nodes.size(), false);
  for (const int32_t node : planned.tree.row_node_idx) report.tree.planned[node] = true;
  for (const int32_t node : speculation::MatchedPath(guess, report.token_ids)) {
    if (!report.tree.planned[node]) break;  // the guess was right, but the node had no row
    report.accepted.push_back(node);
  }
}

}  // namespace

StepReport ReportOf(const StepSummary& step, const PlannedSequence& planned, uint32_t asked,
                    const MissingSessions& missing, std::span<const std::string> proposers) {
  const Sequence& sequence = *planned.sequence;
  const std::vector<int32_t>& emitted = sequence.output.token_ids;  // a chunk of the prompt emits nothing
  StepReport report{.step = step,
                    .position = sequence.size() - static_cast<int32_t>(emitted.size()),
                    .num_context_rows = planned.num_chain,
                    .node_budget = sequence.active->max_tree_nodes,
                    .token_ids = emitted,
                    .draws = !emitted.empty()};
  ReportTree(planned, report);
  for (size_t i = 0; i < proposers.size() && sequence.is_open; ++i) {
    const auto has = [i](uint32_t bits) { return (bits >> i & 1) != 0; };
    if (!has(sequence.active->allowed_proposers)) continue;
    (has(missing.absent)     ? report.absent_proposers
     : has(missing.refusing) ? report.refusing_proposers
     : has(asked)            ? report.asked_proposers
                             : report.resting_proposers)
        .push_back(proposers[i]);
  }
  if (report.draws) report.expected_tokens = ExpectedTokens(planned);
  return report;
}

}  // namespace foretoken::verifier
