// SPDX-License-Identifier: Apache-2.0
// What a proposer's stated chances are worth: how often a node was emitted, given that its parent was, by proposer,
// depth and stated chance. Every tree that arrived is scored against the tokens emitted later, whether it was verified
// or not; under the keyed draw the score does not depend on that, so it is unbiased.
//
// Threads: one.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/speculation/token_tree.h"

namespace foretoken::verifier {

// How often a node of a proposer was tried, because its parent was emitted, and how often it was emitted itself.
struct ChanceCounts {
  static constexpr int32_t kNumDepths = 5;
  static constexpr std::array<const char*, kNumDepths> kDepths = {"1", "2", "3-4", "5-8", "9+"};

  std::array<uint64_t, kNumDepths> num_trials = {};
  std::array<uint64_t, kNumDepths> num_hits = {};
};

class Calibration {
 public:
  explicit Calibration(size_t num_proposers) : cells_(num_proposers), counts_(num_proposers) {}

  // How likely each node is reached and emitted: the product of its path's chances, each replaced by what experience
  // says of it. A node of several proposers has its best one's chance. [N]
  std::vector<float> PathChances(const speculation::TokenTree& tree) const;

  // Scores a tree against the tokens emitted at its position. Returns how many of them it had guessed.
  int32_t Observe(const speculation::TokenTree& tree, std::span<const int32_t> emitted);

  // Since the start. [proposers]
  const std::vector<ChanceCounts>& counts() const { return counts_; }

 private:
  static constexpr int32_t kNumChanceCells = 8;
  static constexpr int32_t kNumDepthCells = ChanceCounts::kNumDepths;
  struct Cell {
    float num_trials = 0;
    float num_hits = 0;
  };
  using ProposerCells = std::array<std::array<Cell, kNumChanceCells>, kNumDepthCells>;

  static size_t DepthCell(int32_t depth);
  static size_t ChanceCell(float chance);

  std::vector<ProposerCells> cells_;  // [proposers]
  std::vector<ChanceCounts> counts_;  // [proposers]
};

}  // namespace foretoken::verifier
