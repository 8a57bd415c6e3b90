// SPDX-License-Identifier: Apache-2.0
#include "tests/reference/wrong_drafts.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "tests/testing/distributions/small_proposer.h"

namespace foretoken::reference {

using speculation::DraftDistribution;
using speculation::kRootParent;
using speculation::SampledChildren;
using speculation::TokenTree;

TokenTree ClaimSampled(TokenTree tree, const testing::SmallDistribution& distribution) {
  tree.sampled.clear();
  for (int32_t parent = kRootParent; parent < tree.num_nodes(); ++parent) {
    SampledChildren group{.parent = parent};
    for (int32_t node = parent + 1; node < tree.num_nodes(); ++node) {
      if (tree.nodes[node].parent == parent) group.children.push_back(node);
    }
    if (group.children.empty()) continue;
    std::vector<int32_t> path;
    for (int32_t node = parent; node != kRootParent; node = tree.nodes[node].parent)
      path.push_back(tree.nodes[node].token_id);
    std::reverse(path.begin(), path.end());
    group.draft = std::make_shared<DraftDistribution>(testing::DraftOf(distribution.At(path)));
    tree.sampled.push_back(std::move(group));
  }
  return tree;
}

TokenTree DropUnlikely(const TokenTree& tree, double min_draft_prob) {
  std::vector<int32_t> kept, kept_idx(tree.nodes.size(), -1);
  for (int32_t node = 0; node < tree.num_nodes(); ++node) {
    const int32_t parent = tree.nodes[node].parent;
    if (tree.nodes[node].chance < min_draft_prob || (parent != kRootParent && kept_idx[parent] < 0)) continue;
    kept_idx[node] = static_cast<int32_t>(kept.size());
    kept.push_back(node);
  }
  TokenTree result = speculation::Keep(tree, kept);
  for (const SampledChildren& group : tree.sampled) {
    SampledChildren left{.parent = group.parent == kRootParent ? kRootParent : kept_idx[group.parent],
                         .draft = group.draft};
    for (const int32_t child : group.children) {
      if (kept_idx[child] >= 0) left.children.push_back(kept_idx[child]);
    }
    if (!left.children.empty()) result.sampled.push_back(std::move(left));
  }
  return result;
}

TokenTree SendTruncated(TokenTree tree, int32_t num_kept) {
  for (SampledChildren& group : tree.sampled) {
    const DraftDistribution& draft = *group.draft;
    std::vector<size_t> order(draft.probs.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return draft.probs[a] > draft.probs[b]; });
    order.resize(std::min<size_t>(order.size(), static_cast<size_t>(num_kept)));
    std::sort(order.begin(), order.end());
    DraftDistribution truncated;
    for (const size_t i : order) {
      truncated.token_ids.push_back(draft.token_ids[i]);
      truncated.probs.push_back(draft.probs[i]);
    }
    group.draft = std::make_shared<DraftDistribution>(std::move(truncated));
  }
  return tree;
}

TokenTree GiveUpIfLastUnlikely(const TokenTree& tree, double min_draft_prob) {
  return tree.nodes.back().chance < min_draft_prob ? TokenTree{.position = tree.position} : tree;
}

// The draft's token is the v with the least E_v / Q(v), where the E_v are exponential. The least value m is exponential
// itself. The rest of each other E_v beyond m Q(v) is exponential again and independent. So of two other tokens a and b
// the distribution's draw is a if
//   (m Q(a) + E_a) distribution(b) < (m Q(b) + E_b) distribution(a).
// The chance of this is the integral over E_a, E_b and m.
int32_t DrawWithTheDraftsNoise(std::span<const double> distribution, std::span<const double> draft, int32_t drafted,
                               testing::Branches& branches) {
  FT_CHECK(distribution.size() == 3 && distribution[drafted] == 0);
  const int32_t a = drafted == 0 ? 1 : 0, b = drafted == 2 ? 1 : 2;
  const auto chance_of = [&](int32_t first, int32_t second) {
    const double lead = draft[second] * distribution[first] - draft[first] * distribution[second];  // at least 0
    return 1 - distribution[second] / (distribution[first] + distribution[second]) / (1 + lead / distribution[second]);
  };
  if (distribution[a] <= 0 || distribution[b] <= 0) return distribution[a] > 0 ? a : b;
  const bool a_leads = draft[b] * distribution[a] >= draft[a] * distribution[b];
  const double chance_a = a_leads ? chance_of(a, b) : 1 - chance_of(b, a);
  return branches.Choose({chance_a, 1 - chance_a}) == 0 ? a : b;
}

}  // namespace foretoken::reference
