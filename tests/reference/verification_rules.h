// SPDX-License-Identifier: Apache-2.0
// The verification rules once more, as formulas: every distribution a normalised vector, every step written out, and
// instead of coins the chances of all outcomes. Traversal, which the system does not have, is here as well, because a
// wrong form of it is among the rules that the exactness suite must catch.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace foretoken::reference {

using Distribution = std::vector<double>;  // [V] sums to 1

Distribution Normalised(Distribution distribution);
// norm((scale P - Q)+), and the sum before it was rescaled.
Distribution Residual(double scale, const Distribution& target, const Distribution& draft);
double ResidualMass(double scale, const Distribution& target, const Distribution& draft);
Distribution WithoutToken(Distribution distribution, int32_t token_id);

// The children one proposer drew at a node. No draft: points.
struct Group {
  std::vector<int32_t> token_ids;  // in the order of sampling
  Distribution draft;
};

// Rules 2 and 3: what may happen at a node.
struct NodeOutcomes {
  std::vector<double> accepted;  // by child, all groups' one after another
  double none_accepted = 0;
  Distribution last_distribution;  // what the token is drawn from then; empty if that has no chance
};
NodeOutcomes TestNode(Distribution target, std::span<const Group> groups);

// Rule 4: a chain x_1 ... x_n; targets[i] and drafts[i] are the distributions of the token after x_1 ... x_i, and there
// is one target more than drafts, or as many: then the last token has no row.
struct BlockOutcomes {
  std::vector<double> num_accepted;              // [n + 1] the chance that exactly so many are accepted
  std::vector<Distribution> last_distributions;  // [n + 1] of the token after them; empty where there is none
};
BlockOutcomes JudgeBlock(std::span<const int32_t> chain, std::span<const Distribution> targets,
                         std::span<const Distribution> drafts);

// Rule 5: a tree, from its leaves to its root.
struct TraversalNode {
  int32_t token_id = 0;
  Distribution target;
  Distribution draft;
  std::vector<TraversalNode> children;  // in the order of sampling
};
// What a node's accept chance becomes when its first child was rejected: of Z, the node's own chance, and Q(x).
using ParentChance = std::function<double(double residual_mass, double chance, double draft_prob)>;
// Z / (Z + 1 - a).
double ExactParentChance(double residual_mass, double chance, double draft_prob);
// Calls back with every outcome: the accepted path, the distribution of the token after it, and the chance of both.
using PathOutcome =
    std::function<void(std::span<const int32_t> path, const Distribution& last_distribution, double probability)>;
void Traverse(const TraversalNode& root, const ParentChance& parent_chance, const PathOutcome& outcome);

}  // namespace foretoken::reference
