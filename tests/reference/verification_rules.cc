// SPDX-License-Identifier: Apache-2.0
#include "tests/reference/verification_rules.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/check.h"

namespace foretoken::reference {
namespace {

double SumOf(const Distribution& distribution) {
  return std::accumulate(distribution.begin(), distribution.end(), 0.0);
}

// A node during a traversal, with its remaining distributions and children.
struct Visited {
  const TraversalNode* node;
  Distribution target;
  Distribution draft;
  double chance;
  size_t num_deleted = 0;

  bool is_leaf() const { return num_deleted == node->children.size(); }
};

Visited Descend(const Visited& parent) {
  const TraversalNode& child = parent.node->children[parent.num_deleted];
  const double ratio = parent.target.empty() ? 0 : parent.target[child.token_id] / parent.draft[child.token_id];
  return {.node = &child, .target = child.target, .draft = child.draft, .chance = std::min(1.0, parent.chance * ratio)};
}

// Deletes the child that the traversal has rejected.
void Reject(Visited& parent, const ParentChance& parent_chance) {
  const int32_t token_id = parent.node->children[parent.num_deleted++].token_id;
  if (parent.target.empty()) return;
  const double mass = ResidualMass(parent.chance, parent.target, parent.draft);
  const double draft_prob = parent.draft[token_id];
  parent.target = Residual(parent.chance, parent.target, parent.draft);
  parent.draft = WithoutToken(parent.draft, token_id);
  parent.chance = parent_chance(mass, parent.chance, draft_prob);
}

}  // namespace

Distribution Normalised(Distribution distribution) {
  const double sum = SumOf(distribution);
  if (sum <= 0) return {};
  for (double& chance : distribution) chance /= sum;
  return distribution;
}

Distribution Residual(double scale, const Distribution& target, const Distribution& draft) {
  Distribution residual(target.size());
  for (size_t id = 0; id < target.size(); ++id) residual[id] = std::max(0.0, scale * target[id] - draft[id]);
  return Normalised(residual);
}

double ResidualMass(double scale, const Distribution& target, const Distribution& draft) {
  double mass = 0;
  for (size_t id = 0; id < target.size(); ++id) mass += std::max(0.0, scale * target[id] - draft[id]);
  return mass;
}

Distribution WithoutToken(Distribution distribution, int32_t token_id) {
  distribution[token_id] = 0;
  return Normalised(distribution);
}

NodeOutcomes TestNode(Distribution target, std::span<const Group> groups) {
  NodeOutcomes outcomes;
  double reached = 1;
  for (const Group& group : groups) {
    Distribution draft = group.draft;
    for (const int32_t token_id : group.token_ids) {
      if (target.empty()) {  // no outcome reaches this node
        outcomes.accepted.push_back(0);
        continue;
      }
      const bool is_point = group.draft.empty();
      const double accept = is_point ? target[token_id] : std::min(1.0, target[token_id] / draft[token_id]);
      outcomes.accepted.push_back(reached * accept);
      reached *= 1 - accept;
      target = is_point ? WithoutToken(target, token_id) : Residual(1, target, draft);
      if (!is_point) draft = WithoutToken(draft, token_id);
    }
  }
  outcomes.none_accepted = reached;
  outcomes.last_distribution = target;
  return outcomes;
}

BlockOutcomes JudgeBlock(std::span<const int32_t> chain, std::span<const Distribution> targets,
                         std::span<const Distribution> drafts) {
  const size_t n = chain.size();
  std::vector<double> scale = {1};
  for (size_t i = 0; i < n; ++i) {
    scale.push_back(std::min(1.0, scale[i] * targets[i][chain[i]] / drafts[i][chain[i]]));
  }
  BlockOutcomes outcomes{.num_accepted = std::vector<double>(n + 1),
                         .last_distributions = std::vector<Distribution>(n + 1)};
  double none_longer = 1;
  for (size_t i = n + 1; i-- > 0;) {
    double accept = scale[i];
    if (i < n) {
      const double mass = ResidualMass(scale[i], targets[i], drafts[i]);
      accept = mass > 0 ? mass / (mass + 1 - scale[i]) : 0;
      if (i == 0) accept = 1;
      outcomes.last_distributions[i] = Residual(scale[i], targets[i], drafts[i]);
    } else if (targets.size() > n) {
      outcomes.last_distributions[n] = targets[n];
    }
    outcomes.num_accepted[i] = none_longer * accept;
    none_longer *= 1 - accept;
  }
  return outcomes;
}

double ExactParentChance(double residual_mass, double chance, double) {
  return residual_mass > 0 ? residual_mass / (residual_mass + 1 - chance) : 0;
}

void Traverse(const TraversalNode& root, const ParentChance& parent_chance, const PathOutcome& outcome) {
  std::vector<Visited> path = {{.node = &root, .target = root.target, .draft = root.draft, .chance = 1}};
  double reached = 1;
  while (!path.empty() && reached > 0) {
    while (!path.back().is_leaf()) path.push_back(Descend(path.back()));
    const Visited& leaf = path.back();
    const double accept = path.size() == 1 ? 1 : leaf.chance;
    std::vector<int32_t> token_ids;
    for (size_t i = 1; i < path.size(); ++i) token_ids.push_back(path[i].node->token_id);
    if (accept > 0 && !leaf.target.empty()) outcome(token_ids, leaf.target, reached * accept);
    reached *= 1 - accept;
    path.pop_back();
    if (!path.empty()) Reject(path.back(), parent_chance);
  }
}

}  // namespace foretoken::reference
