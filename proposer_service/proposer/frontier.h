// SPDX-License-Identifier: Apache-2.0
// The nodes that may join a growing token tree next, the one of the largest path chance first.
//
// Only as many are kept as can still join, so candidates that come late and small cost nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace foretoken::proposer {

// A Candidate has a `float path_chance`.
template <typename Candidate>
class Frontier {
 public:
  // Candidates must be above min_path_chance. The tree will have at most node_budget nodes.
  Frontier(int32_t node_budget, float min_path_chance) : nodes_left_(node_budget), min_path_chance_(min_path_chance) {
    candidates_.reserve(node_budget + 1);
  }

  bool empty() const { return candidates_.empty(); }
  // How many more nodes Take will give at most.
  int32_t nodes_left() const { return nodes_left_; }

  // Only candidates of a larger path chance can still join the tree.
  float WorthAdding() const {
    return candidates_.size() < nodes_left_ ? min_path_chance_
                                            : candidates_[candidates_.size() - nodes_left_].path_chance;
  }

  void Offer(const Candidate& candidate) {
    if (nodes_left_ == 0 || candidate.path_chance <= WorthAdding()) return;
    // Behind larger ones in taking order, and behind equal ones that came first.
    const auto place =
        std::lower_bound(candidates_.begin(), candidates_.end(), candidate.path_chance,
                         [](const Candidate& c, float path_chance) { return c.path_chance < path_chance; });
    candidates_.insert(place, candidate);
  }

  // There is one.
  Candidate Take() {
    const Candidate best = candidates_.back();
    candidates_.pop_back();
    --nodes_left_;
    return best;
  }

 private:
  int32_t nodes_left_;
  float min_path_chance_;
  std::vector<Candidate> candidates_;  // ascending path chance
};

}  // namespace foretoken::proposer
