// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/distributions/small_proposer.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>

#include "kernels/check.h"

namespace foretoken::testing {
namespace {

using speculation::DraftDistribution;
using speculation::kRootParent;
using speculation::TokenTree;

// A tree during its draw, depth first. All children of a node come before their own children.
class TreeDraw {
 public:
  TreeDraw(const SmallProposer& proposer, std::span<const int32_t> context, DrawnChildrenByPath& drawn,
           Branches& branches, TokenTree& tree)
      : proposer_(proposer),
        context_(context.begin(), context.end()),
        drawn_(drawn),
        branches_(branches),
        tree_(tree) {}

  void Grow(int32_t parent, int32_t max_depth) {
    if (max_depth == 0) return;
    std::vector<int32_t> history = context_;
    history.insert(history.end(), path_.begin(), path_.end());
    const std::span<const double> distribution = proposer_.distribution->At(history);
    const auto [known, is_new] = drawn_.try_emplace(history);
    if (is_new) known->second = Draw(distribution);
    const std::vector<int32_t>& children = known->second;
    const int32_t first_child = tree_.num_nodes();
    for (const int32_t token_id : children) {
      AddNode(token_id, parent,
              distribution[token_id] / std::accumulate(distribution.begin(), distribution.end(), 0.0));
    }
    if (!children.empty() && proposer_.drawing == Drawing::kSampled)
      AddGroup(parent, first_child, children, distribution);
    for (size_t rank = 0; rank < children.size(); ++rank) {
      path_.push_back(children[rank]);
      ranks_.push_back(static_cast<int32_t>(rank));
      Grow(first_child + static_cast<int32_t>(rank), max_depth - 1);
      path_.pop_back();
      ranks_.pop_back();
    }
  }

 private:
  std::vector<int32_t> Draw(std::span<const double> distribution) {
    std::vector<double> left(distribution.begin(), distribution.end());
    std::vector<int32_t> children;
    while (*std::max_element(left.begin(), left.end()) > 0 && proposer_.wants_child({path_, ranks_, children})) {
      children.push_back(Pick(left));
      left[children.back()] = 0;
    }
    return children;
  }

  int32_t Pick(std::span<const double> left) {
    if (proposer_.drawing != Drawing::kBest) return branches_.Choose(left);
    return static_cast<int32_t>(std::max_element(left.begin(), left.end()) - left.begin());
  }

  void AddNode(int32_t token_id, int32_t parent, double chance) {
    tree_.Append({.token_id = token_id,
                  .parent = parent,
                  .chance = std::clamp(static_cast<float>(chance), 1e-6f, 1.0f),
                  .proposers = 1u << proposer_.proposer_idx});
  }

  void AddGroup(int32_t parent, int32_t first_child, std::span<const int32_t> siblings,
                std::span<const double> distribution) {
    speculation::SampledChildren& group = tree_.sampled.emplace_back();
    group.parent = parent;
    group.children.resize(siblings.size());
    std::iota(group.children.begin(), group.children.end(), first_child);
    group.draft = std::make_shared<DraftDistribution>(DraftOf(distribution));
  }

  const SmallProposer& proposer_;
  std::vector<int32_t> context_;
  DrawnChildrenByPath& drawn_;
  Branches& branches_;
  TokenTree& tree_;
  std::vector<int32_t> path_;
  std::vector<int32_t> ranks_;
};

}  // namespace

TokenTree DrawTree(const SmallProposer& proposer, std::span<const int32_t> context, Branches& branches) {
  DrawnChildrenByPath nothing_yet;
  return SnapshotTree(proposer, context, std::numeric_limits<int32_t>::max(), nothing_yet, branches);
}

TokenTree SnapshotTree(const SmallProposer& proposer, std::span<const int32_t> context, int32_t max_depth,
                       DrawnChildrenByPath& drawn, Branches& branches) {
  TokenTree tree{.position = context.size()};
  TreeDraw(proposer, context, drawn, branches, tree).Grow(kRootParent, max_depth);
  return tree;
}

DraftDistribution DraftOf(std::span<const double> row) {
  DraftDistribution draft;
  for (size_t id = 0; id < row.size(); ++id) {
    if (row[id] <= 0) continue;
    draft.token_ids.push_back(static_cast<int32_t>(id));
    draft.probs.push_back(static_cast<float>(row[id]));
  }
  return draft;
}

kernels::RowWeights SmallRows::operator()(int32_t node_idx, std::span<const int32_t> path_token_ids) {
  FT_CHECK(node_idx < tree_.num_rows);
  std::vector<int32_t> path;
  for (int32_t node = node_idx; node > 0; node = tree_.parents[node]) path.push_back(tree_.token_ids[node]);
  std::reverse(path.begin(), path.end());
  FT_CHECK(std::equal(path.begin(), path.end(), path_token_ids.begin(), path_token_ids.end()));
  path.insert(path.begin(), context_.begin(), context_.end());
  const std::span<const double> distribution = target_.At(path);
  row_.assign(distribution.begin(), distribution.end());
  return {.weights = row_};
}

kernels::TreeToAccept TreeOf(const verifier::TestedTree& tested, size_t num_row_nodes, size_t context_len) {
  return {.token_ids = tested.token_ids,
          .parents = tested.parents,
          .context_len = static_cast<uint32_t>(context_len),
          .rule = kernels::VerificationRule::kRejectionSampling,
          .num_rows = static_cast<int32_t>(num_row_nodes) + 1,
          .drawn = tested.groups};
}

}  // namespace foretoken::testing
