// SPDX-License-Identifier: Apache-2.0
// Estimates the value of the rows of a rejection-sampled tree without reading the tree: how often past steps emitted
// the node of each place. A node's place is its index in the order of speculation::BestNodeIdx.
//
// Rejection sampling is exact only if the choice of rows does not depend on the tokens drawn below a row. Otherwise the
// walk would stop or continue because of children that it has not tested yet. So these chances alone fix a step's
// number of rows, before the planner reads the tree.
//
// Learning from past steps keeps this exact, although the next tree consists of the descendants of the last walk's last
// node. The place of an emitted node depends only on nodes that are not its descendants. The class learns from places
// alone. The existence of a node of some place, and the size of a tree, depend on the descendants. So a place without
// an emitted node counts as missed, with or without such a node in the tree.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace foretoken::verifier {

class PlaceChances {
 public:
  explicit PlaceChances(int32_t max_nodes);

  // The chance that the node of each place is emitted. The chances never increase with the place. [max_nodes]
  std::span<const float> chances() const { return chances_; }

  // Learns from a step that gave rows to the best `num_rows` nodes, or to all if there were fewer, and that emitted the
  // nodes of these places. It learns about the places up to num_rows: the parent of such a node had a row, so a walk
  // that reached the parent tested the node. It learns nothing about other places, because their parents may have had
  // no row.
  void Observe(int32_t num_rows, std::span<const int32_t> emitted_places);

 private:
  std::vector<float> hit_rates_;     // [max_nodes] moving means
  std::vector<int32_t> num_trials_;  // [max_nodes]
  std::vector<float> chances_;       // [max_nodes]
};

}  // namespace foretoken::verifier
