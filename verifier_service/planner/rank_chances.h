// SPDX-License-Identifier: Apache-2.0
// What the rows of a rejection-sampled sequence's tree are worth, without a look at the tree: how often the node of
// rank r, in the order of speculation::BestNodeIdx, was emitted in past steps.
//
// Rejection sampling is exact only where nothing that decides whether a node has a row depends on what was drawn below
// it: else the walk would stop, or go on, because of children it is yet to test. So a step's number of rows is chosen
// by this, before the tree is read. Past steps may be learned from, although what they left below the walk's last node
// is the next tree: the rank of an emitted node depends on nodes that are not its descendants only, and all that is
// left are descendants of the last one. The rank alone is learned. Whether a tree had a node of some rank, or how many
// it had, depends on those descendants, so a rank counts as missed whether or not there was such a node.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace foretoken::verifier {

class RankChances {
 public:
  explicit RankChances(int32_t max_nodes);

  // How likely the node of each rank is emitted; never rising, so that every prefix is worth more than what follows.
  // [max_nodes]
  std::span<const float> chances() const { return chances_; }

  // A step gave the best `num_rows` nodes rows, as far as there were so many, and emitted the nodes of these ranks. It
  // tells of the ranks up to num_rows: the parent of each such node had a row, so that the node was tested if the walk
  // came by. Of others, which might have had none, nothing is learned.
  void Observe(int32_t num_rows, std::span<const int32_t> emitted_ranks);

 private:
  std::vector<float> hit_rates_;     // [max_nodes] moving means
  std::vector<int32_t> num_trials_;  // [max_nodes]
  std::vector<float> chances_;       // [max_nodes]
};

}  // namespace foretoken::verifier
