// SPDX-License-Identifier: Apache-2.0
// Calibrates the chances that proposers state. It learns how often a node was emitted, given that its parent was
// emitted, by proposer, depth and stated chance. It scores every tree that arrived against the tokens emitted later,
// verified or not. Under the keyed draw verification does not change the tokens, so the score is unbiased.
//
// Threads: one.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/speculation/token_tree.h"

namespace foretoken::verifier {

// Counts by depth: trials (nodes whose parent was emitted) and hits (nodes that were emitted themselves).
struct ChanceCounts {
  static constexpr int32_t kNumDepths = 5;
  static constexpr std::array<const char*, kNumDepths> kDepths = {"1", "2", "3-4", "5-8", "9+"};

  std::array<uint64_t, kNumDepths> num_trials = {};
  std::array<uint64_t, kNumDepths> num_hits = {};
};

class Calibration {
 public:
  explicit Calibration(size_t num_proposers) : cells_(num_proposers), counts_(num_proposers) {}

  // Returns the chance that each node is reached and emitted: the product of the calibrated chances on its path. A node
  // of several proposers takes the best calibrated chance. [N]
  std::vector<float> PathChances(const speculation::TokenTree& tree) const;

  // Scores a tree against the tokens emitted at its position. Returns the number of tokens that the tree had guessed.
  int32_t Observe(const speculation::TokenTree& tree, std::span<const int32_t> emitted);

  // The counts since the start. [proposers]
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
