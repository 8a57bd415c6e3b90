// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/calibration.h"

#include <algorithm>
#include <bit>

namespace foretoken::verifier {
namespace {

constexpr float kPriorTrials = 4;   // how many observations the stated chance itself counts for
constexpr float kMaxTrials = 256;   // beyond it a cell forgets

}  // namespace

size_t Calibration::DepthCell(int32_t depth) {
  return std::min<size_t>(std::bit_width(static_cast<uint32_t>(depth - 1)), kNumDepthCells - 1);
}

size_t Calibration::ChanceCell(float chance) {
  return std::min<size_t>(static_cast<size_t>(chance * kNumChanceCells), kNumChanceCells - 1);
}

std::vector<float> Calibration::CalibratedChances(const speculation::TokenTree& tree) const {
  const std::vector<int32_t> depths = speculation::Depths(tree);
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

int32_t Calibration::Observe(const speculation::TokenTree& tree, std::span<const int32_t> emitted) {
  // Children of the emitted path only: below a wrong node nothing was ever tried.
  const std::vector<int32_t> path = speculation::MatchedPath(tree, emitted);
  const std::vector<int32_t> depths = speculation::Depths(tree);
  for (int32_t node = 0; node < tree.num_nodes(); ++node) {
    const int32_t depth = depths[node];
    const size_t num_above = static_cast<size_t>(depth) - 1;
    if (num_above >= emitted.size() || num_above > path.size()) continue;
    if (tree.parents[node] != (num_above == 0 ? speculation::kRootParent : path[num_above - 1])) continue;
    const bool is_hit = tree.token_ids[node] == emitted[num_above];
    for (uint32_t bits = tree.proposers[node]; bits != 0; bits &= bits - 1) {
      Cell& cell = cells_[std::countr_zero(bits)][DepthCell(depth)][ChanceCell(tree.chances[node])];
      if (cell.num_trials >= kMaxTrials) cell = {.num_trials = cell.num_trials / 2, .num_hits = cell.num_hits / 2};
      cell.num_trials += 1;
      cell.num_hits += is_hit ? 1 : 0;
    }
  }
  return static_cast<int32_t>(path.size());
}

}  // namespace foretoken::verifier
