// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/planner/calibration.h"

#include <algorithm>
#include <bit>

#include "absl/container/fixed_array.h"
#include "absl/container/inlined_vector.h"

namespace foretoken::verifier {
namespace {

constexpr float kPriorTrials = 4;  // the stated chance counts as this many observations
constexpr float kMaxTrials = 256;  // above it a cell forgets old observations

}  // namespace

size_t Calibration::DepthCell(int32_t depth) {
  return std::min<size_t>(std::bit_width(static_cast<uint32_t>(depth - 1)), kNumDepthCells - 1);
}

size_t Calibration::ChanceCell(float chance) {
  return std::min<size_t>(static_cast<size_t>(chance * kNumChanceCells), kNumChanceCells - 1);
}

std::vector<float> Calibration::PathChances(const speculation::TokenTree& tree) const {
  absl::FixedArray<int32_t, 64> depths(tree.nodes.size());
  std::vector<float> path_chances(tree.nodes.size());
  for (int32_t node = 0; node < tree.num_nodes(); ++node) {
    const int32_t parent = tree.nodes[node].parent;
    const bool is_below_root = parent == speculation::kRootParent;
    depths[node] = is_below_root ? 1 : depths[parent] + 1;
    float chance = 0;
    for (uint32_t bits = tree.nodes[node].proposers; bits != 0; bits &= bits - 1) {
      const Cell& cell = cells_[std::countr_zero(bits)][DepthCell(depths[node])][ChanceCell(tree.nodes[node].chance)];
      chance =
          std::max(chance, (cell.num_hits + kPriorTrials * tree.nodes[node].chance) / (cell.num_trials + kPriorTrials));
    }
    path_chances[node] = is_below_root ? chance : path_chances[parent] * chance;
  }
  return path_chances;
}

int32_t Calibration::Observe(const speculation::TokenTree& tree, std::span<const int32_t> emitted) {
  // Scores only children of the emitted path, because nodes below a wrong node were never tried. A node's index is
  // larger than its parent's, so one pass knows whether the parent is on the path when it reaches the child.
  int32_t num_guessed = 0;
  absl::InlinedVector<int32_t, 64> path;
  for (int32_t node = 0; node < tree.num_nodes(); ++node) {
    const int32_t parent = tree.nodes[node].parent;
    const auto place = std::find(path.begin(), path.end(), parent);
    if (parent != speculation::kRootParent && place == path.end()) continue;
    const size_t num_above = parent == speculation::kRootParent ? 0 : static_cast<size_t>(place - path.begin()) + 1;
    if (num_above >= emitted.size()) continue;
    const bool is_hit = tree.nodes[node].token_id == emitted[num_above];
    if (is_hit) {
      path.push_back(node);
      ++num_guessed;
    }
    for (uint32_t bits = tree.nodes[node].proposers; bits != 0; bits &= bits - 1) {
      const size_t proposer = std::countr_zero(bits);
      const size_t depth_cell = DepthCell(static_cast<int32_t>(num_above) + 1);
      Cell& cell = cells_[proposer][depth_cell][ChanceCell(tree.nodes[node].chance)];
      if (cell.num_trials >= kMaxTrials) cell = {.num_trials = cell.num_trials / 2, .num_hits = cell.num_hits / 2};
      cell.num_trials += 1;
      cell.num_hits += is_hit ? 1 : 0;
      ++counts_[proposer].num_trials[depth_cell];
      counts_[proposer].num_hits[depth_cell] += is_hit ? 1 : 0;
    }
  }
  return num_guessed;
}

}  // namespace foretoken::verifier
