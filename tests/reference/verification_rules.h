// SPDX-License-Identifier: Apache-2.0
// The verification rules once more, as formulas: every law a normalised vector, every step written out, and instead of
// coins the chances of all outcomes. Traversal, which the system does not have, is here as well, because a wrong form
// of it is among the rules that the exactness suite must catch.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace foretoken::reference {

using Law = std::vector<double>;  // [V] sums to 1

Law Normalised(Law law);
// norm((scale P - Q)+), and the sum before it was rescaled.
Law Residual(double scale, const Law& target, const Law& draft);
double ResidualMass(double scale, const Law& target, const Law& draft);
Law WithoutToken(Law law, int32_t token_id);

// The children one proposer drew at a node. No draft: points.
struct Group {
  std::vector<int32_t> token_ids;  // in the order of sampling
  Law draft;
};

// Rules 2 and 3: what may happen at a node.
struct NodeOutcomes {
  std::vector<double> accepted;  // by child, all groups' one after another
  double none_accepted = 0;
  Law last_law;  // what the token is drawn from then; empty if that has no chance
};
NodeOutcomes TestNode(Law target, std::span<const Group> groups);

// Rule 4: a chain x_1 ... x_n; targets[i] and drafts[i] are the laws of the token after x_1 ... x_i, and there is one
// target more than drafts, or as many: then the last token has no row.
struct BlockOutcomes {
  std::vector<double> num_accepted;  // [n + 1] the chance that exactly so many are accepted
  std::vector<Law> last_laws;        // [n + 1] of the token after them; empty where there is none
};
BlockOutcomes JudgeBlock(std::span<const int32_t> chain, std::span<const Law> targets, std::span<const Law> drafts);

// Rule 5: a tree, from its leaves to its root.
struct TraversalNode {
  int32_t token_id = 0;
  Law target;
  Law draft;
  std::vector<TraversalNode> children;  // in the order of sampling
};
// What a node's accept chance becomes when its first child was rejected: of Z, the node's own chance, and Q(x).
using ParentChance = std::function<double(double residual_mass, double chance, double draft_prob)>;
// Z / (Z + 1 - a).
double ExactParentChance(double residual_mass, double chance, double draft_prob);
// Calls back with every outcome: the accepted path, the law of the token after it, and the chance of both.
using PathOutcome = std::function<void(std::span<const int32_t> path, const Law& last_law, double probability)>;
void Traverse(const TraversalNode& root, const ParentChance& parent_chance, const PathOutcome& outcome);

}  // namespace foretoken::reference
