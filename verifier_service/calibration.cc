// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/calibration.h"

#include <algorithm>
#include <bit>

namespace foretoken::verifier {
namespace {

constexpr float kPriorTrials = 4;   // how many observations the stated chance itself counts for
constexpr float kMaxTrials = 256;   // beyond it a cell forgets

std::vector<int32_t> Depths(const speculation::TokenTree& tree) {
  std::vector<int32_t> depths(tree.num_nodes());
  for (int32_t node = 0; node < tree.num_nodes(); ++node) {
    const int32_t parent = tree.parents[node];
    depths[node] = parent == speculation::kRootParent ? 1 : depths[parent] + 1;
  }
  return depths;
}

}  // namespace

size_t Calibration::DepthCell(int32_t depth) {
  return std::min<size_t>(std::bit_width(static_cast<uint32_t>(depth - 1)), kNumDepthCells - 1);
}

size_t Calibration::ChanceCell(float chance) {
  return std::min<size_t>(static_cast<size_t>(chance * kNumChanceCells), kNumChanceCells - 1);
}

std::vector<float> Calibration::CalibratedChances(const speculation::TokenTree& tree) const {
  const std::vector<int32_t> depths = Depths(tree);
  std::vector<float> chances(tree.num_nodes());
  for (int32_t node = 0; node < tree.num_nodes(); ++node) {
    for (uint32_t bits = tree.proposers[node]; bits != 0; bits &= bits - 1) {
      const Cell& cell = cells_[std::countr_zero(bits)][DepthCell(depths[node])][ChanceCell(tree.chances[node])];
      const float chance = (cell.num_hits + kPriorTrials * tree.chances[node]) / (cell.num_trials + kPriorTrials);
      chances[node] = std::max(chances[node], chance);
    }
  }
  return chances;
}

void Calibration::Observe(const speculation::TokenTree& tree, std::span<const int32_t> emitted) {
  // Children of the emitted path only: below a wrong node nothing was ever tried.
  int32_t path_end = speculation::kRootParent;
  int32_t depth = 0;  // of path_end
  for (int32_t node = 0; node < tree.num_nodes() && depth < static_cast<int32_t>(emitted.size()); ++node) {
    if (tree.parents[node] != path_end) continue;
    // All siblings stand behind path_end, and the hit among them may not be the last: look at the whole family first.
    int32_t hit = path_end;
    for (int32_t sibling = node; sibling < tree.num_nodes(); ++sibling) {
      if (tree.parents[sibling] != path_end) continue;
      const bool is_hit = tree.token_ids[sibling] == emitted[depth];
      if (is_hit) hit = sibling;
      for (uint32_t bits = tree.proposers[sibling]; bits != 0; bits &= bits - 1) {
        Cell& cell = cells_[std::countr_zero(bits)][DepthCell(depth + 1)][ChanceCell(tree.chances[sibling])];
        if (cell.num_trials >= kMaxTrials) cell = {.num_trials = cell.num_trials / 2, .num_hits = cell.num_hits / 2};
        cell.num_trials += 1;
        cell.num_hits += is_hit ? 1 : 0;
      }
    }
    if (hit == path_end) return;
    path_end = hit;
    ++depth;
    node = hit;
  }
}

}  // namespace foretoken::verifier
