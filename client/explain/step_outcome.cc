// SPDX-License-Identifier: Apache-2.0
#include "client/explain/step_outcome.h"

namespace foretoken::client {

using foretoken::v1::StepReport;
using foretoken::v1::StepTree;

std::vector<NodeOutcome> NodeOutcomes(const StepReport& step) {
  const StepTree& tree = step.tree();
  std::vector<NodeOutcome> outcomes(tree.token_ids_size(), NodeOutcome::kNoRow);
  for (const uint32_t node : step.accepted()) outcomes[node] = NodeOutcome::kAccepted;
  const int last = step.accepted().empty() ? -1 : static_cast<int>(step.accepted().rbegin()[0]);
  const std::optional<uint32_t> bonus = BonusToken(step);
  for (int node = 0; node < tree.token_ids_size(); ++node) {
    if (outcomes[node] == NodeOutcome::kAccepted) continue;
    const int parent = tree.parents(node);
    const bool is_reached = parent == -1 || outcomes[parent] == NodeOutcome::kAccepted;
    if (tree.planned(node)) {
      outcomes[node] = is_reached ? NodeOutcome::kRejected : NodeOutcome::kNotReached;
    } else if (parent == last && bonus == tree.token_ids(node)) {
      outcomes[node] = NodeOutcome::kMissed;
    }
  }
  return outcomes;
}

std::vector<float> StatedPathChances(const StepTree& tree) {
  std::vector<float> chances(tree.chances().begin(), tree.chances().end());
  for (int node = 0; node < tree.token_ids_size(); ++node) {
    if (tree.parents(node) >= 0) chances[node] *= chances[tree.parents(node)];
  }
  return chances;
}

std::vector<int> NodeDepths(const StepTree& tree) {
  std::vector<int> depths(tree.token_ids_size());
  for (int node = 0; node < tree.token_ids_size(); ++node) {
    depths[node] = tree.parents(node) < 0 ? 1 : depths[tree.parents(node)] + 1;
  }
  return depths;
}

std::optional<uint32_t> BonusToken(const StepReport& step) {
  if (step.token_ids_size() <= step.accepted_size()) return std::nullopt;
  return step.token_ids(step.token_ids_size() - 1);
}

}  // namespace foretoken::client
