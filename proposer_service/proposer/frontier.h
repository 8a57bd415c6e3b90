// SPDX-License-Identifier: Apache-2.0
// The candidate nodes of a growing token tree, ordered by path chance. The tree takes the likeliest candidate first.
//
// The frontier keeps only as many candidates as can still join the tree, so late and unlikely candidates cost nothing.
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace foretoken::proposer {

// A Candidate has a `float path_chance`.
template <typename Candidate>
class Frontier {
 public:
  // Candidates must be above min_path_chance. The tree has at most node_budget nodes.
  Frontier(int32_t node_budget, float min_path_chance) : nodes_left_(node_budget), min_path_chance_(min_path_chance) {
    candidates_.reserve(node_budget + 1);
  }

  bool empty() const { return candidates_.empty(); }
  // How many more nodes the tree may take.
  int32_t nodes_left() const { return nodes_left_; }

  // The bound on path chances: a candidate must be above it to join the tree.
  float WorthAdding() const {
    return candidates_.size() < nodes_left_ ? min_path_chance_
                                            : candidates_[candidates_.size() - nodes_left_].path_chance;
  }

  void Offer(const Candidate& candidate) {
    if (nodes_left_ == 0 || candidate.path_chance <= WorthAdding()) return;
    // The candidate is taken after larger ones, and after equal ones that were offered earlier.
    const auto place =
        std::lower_bound(candidates_.begin(), candidates_.end(), candidate.path_chance,
                         [](const Candidate& c, float path_chance) { return c.path_chance < path_chance; });
    candidates_.insert(place, candidate);
  }

  // Takes the likeliest candidate. The frontier must not be empty.
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
