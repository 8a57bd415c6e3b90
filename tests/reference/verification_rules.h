// SPDX-License-Identifier: Apache-2.0
// The reference verification rules, as formulas: every distribution is a normalised vector, every step is written out,
// and the results are the chances of all outcomes instead of coins. Traversal is here too, although the system does not
// use it, because the exactness suite must detect a wrong form of it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace foretoken::reference {

using Distribution = std::vector<double>;  // [V] sums to 1

Distribution Normalised(Distribution distribution);
// Residual returns norm((scale P - Q)+). ResidualMass returns the sum before the normalisation.
Distribution Residual(double scale, const Distribution& target, const Distribution& draft);
double ResidualMass(double scale, const Distribution& target, const Distribution& draft);
Distribution WithoutToken(Distribution distribution, int32_t token_id);

// The children of one proposer at a node. Without a draft they are points.
struct Group {
  std::vector<int32_t> token_ids;  // in the order of sampling
  Distribution draft;
};

// Rules 2 and 3: the outcomes at a node.
struct NodeOutcomes {
  std::vector<double> accepted;  // by child, one group after another
  double none_accepted = 0;
  Distribution last_distribution;  // of the token if no child is accepted; empty if that has no chance
};
NodeOutcomes TestNode(Distribution target, std::span<const Group> groups);

// Rule 4: a chain x_1 ... x_n. targets[i] and drafts[i] are the distributions of the token after x_1 ... x_i. There is
// one more target than drafts, or an equal number if the last token has no row.
struct BlockOutcomes {
  std::vector<double> num_accepted;              // [n + 1] the chance that exactly this many are accepted
  std::vector<Distribution> last_distributions;  // [n + 1] of the token after them; empty if there is none
};
BlockOutcomes JudgeBlock(std::span<const int32_t> chain, std::span<const Distribution> targets,
                         std::span<const Distribution> drafts);

// Rule 5: a tree, processed from its leaves to its root.
struct TraversalNode {
  int32_t token_id = 0;
  Distribution target;
  Distribution draft;
  std::vector<TraversalNode> children;  // in the order of sampling
};
// Returns a node's new accept chance after its first child was rejected, from Z, the node's own chance, and Q(x).
using ParentChance = std::function<double(double residual_mass, double chance, double draft_prob)>;
// Returns Z / (Z + 1 - a).
double ExactParentChance(double residual_mass, double chance, double draft_prob);
// Called with every outcome: the accepted path, the distribution of the token after it, and the chance of the outcome.
using PathOutcome =
    std::function<void(std::span<const int32_t> path, const Distribution& last_distribution, double probability)>;
void Traverse(const TraversalNode& root, const ParentChance& parent_chance, const PathOutcome& outcome);

}  // namespace foretoken::reference
