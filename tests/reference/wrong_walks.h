// SPDX-License-Identifier: Apache-2.0
// Verification rules that look right but are wrong. Each is a plausible mistake, and the exactness suite must detect
// each. Rows and coins are as in kernels/rejection_sampling.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "kernels/rejection_sampling.h"
#include "tests/reference/block_verification.h"
#include "tests/reference/verification_rules.h"

namespace foretoken::reference {

// The common walk of the wrong rules. `test` turns a node's target distribution into the accepted child, or into the
// distribution of the drawn token.
template <typename Rows, typename Coins, typename Test>
void WrongWalk(const kernels::TreeToAccept& tree, Rows& rows, Coins& coins, kernels::AcceptedPath& path, Test&& test) {
  for (int32_t node_idx = 0; node_idx < tree.num_rows;) {
    const kernels::RowWeights row = rows(node_idx, path.token_ids);
    path.node_idx.push_back(node_idx);
    coins.Begin(tree.context_len + static_cast<uint32_t>(path.token_ids.size()));
    Distribution target = Normalised({row.weights.begin(), row.weights.end()});
    const std::optional<int32_t> child = test(node_idx, target);
    path.token_ids.push_back(child.has_value() ? tree.token_ids[*child] : coins.Draw(target));
    if (!child.has_value()) return;
    node_idx = *child;
  }
}

inline Distribution DraftOf(const kernels::DrawnChildren& drawn, size_t num_tokens) {
  Distribution draft(num_tokens, 0);
  for (size_t i = 0; i < drawn.draft_token_ids.size(); ++i) draft[drawn.draft_token_ids[i]] = drawn.draft_probs[i];
  return Normalised(draft);
}

// Keeps only Q(x) of the chosen token, and makes the residual from this spike.
struct SpikeResidual {
  template <typename Rows, typename Coins>
  void operator()(const kernels::TreeToAccept& tree, Rows& rows, Coins& coins, kernels::AcceptedPath& path) const {
    WrongWalk(tree, rows, coins, path, [&](int32_t node_idx, Distribution& target) -> std::optional<int32_t> {
      for (const kernels::DrawnChildren& drawn : tree.drawn) {
        if (drawn.parent != node_idx) continue;
        const Distribution draft = DraftOf(drawn, target.size());
        for (const int32_t child : drawn.children) {
          const int32_t token_id = tree.token_ids[child];
          if (coins.Accept(target[token_id], draft[token_id])) return child;
          Distribution spike(target.size(), 0);
          spike[token_id] = draft[token_id];
          target = Residual(1, target, spike);
        }
      }
      return std::nullopt;
    });
  }
};

// Leaves a rejected guess its target_prob.
struct RejectedPointStays {
  template <typename Rows, typename Coins>
  void operator()(const kernels::TreeToAccept& tree, Rows& rows, Coins& coins, kernels::AcceptedPath& path) const {
    WrongWalk(tree, rows, coins, path, [&](int32_t node_idx, Distribution& target) -> std::optional<int32_t> {
      for (const kernels::DrawnChildren& drawn : tree.drawn) {
        if (drawn.parent != node_idx) continue;
        for (const int32_t child : drawn.children) {
          if (coins.Accept(target[tree.token_ids[child]], 1)) return child;
        }
      }
      return std::nullopt;
    });
  }
};

// Tests children that were sampled without replacement as if they had been sampled with replacement.
struct DraftNotRenormalised {
  template <typename Rows, typename Coins>
  void operator()(const kernels::TreeToAccept& tree, Rows& rows, Coins& coins, kernels::AcceptedPath& path) const {
    WrongWalk(tree, rows, coins, path, [&](int32_t node_idx, Distribution& target) -> std::optional<int32_t> {
      for (const kernels::DrawnChildren& drawn : tree.drawn) {
        if (drawn.parent != node_idx) continue;
        Distribution draft = DraftOf(drawn, target.size());
        for (const int32_t child : drawn.children) {
          const int32_t token_id = tree.token_ids[child];
          if (coins.Accept(target[token_id], draft[token_id])) return child;
          target = Residual(1, target, draft);
          draft[token_id] = 0;
          if (target.empty()) return child;
        }
      }
      return std::nullopt;
    });
  }
};

// Tests all proposers' children at a node against the mean of their distributions.
struct MixtureOfProposers {
  template <typename Rows, typename Coins>
  void operator()(const kernels::TreeToAccept& tree, Rows& rows, Coins& coins, kernels::AcceptedPath& path) const {
    WrongWalk(tree, rows, coins, path, [&](int32_t node_idx, Distribution& target) -> std::optional<int32_t> {
      Distribution mixture(target.size(), 0);
      std::vector<int32_t> children;
      for (const kernels::DrawnChildren& drawn : tree.drawn) {
        if (drawn.parent != node_idx) continue;
        const Distribution draft = DraftOf(drawn, target.size());
        for (size_t id = 0; id < draft.size(); ++id) mixture[id] += draft[id];
        children.insert(children.end(), drawn.children.begin(), drawn.children.end());
      }
      for (const int32_t child : children) {
        const Distribution draft = Normalised(mixture);
        if (draft.empty()) break;
        if (coins.Accept(target[tree.token_ids[child]], draft[tree.token_ids[child]])) return child;
        target = Residual(1, target, draft);
        mixture[tree.token_ids[child]] = 0;
        if (target.empty()) return child;
      }
      return std::nullopt;
    });
  }
};

// Draws from whole tiles, so that values beyond the vocabulary in the last tile can win.
struct DrawsFromTailTile {
  size_t tile = 4;
  double tail_weight = 0.1;

  template <typename Rows, typename Coins>
  void operator()(const kernels::TreeToAccept& tree, Rows& rows, Coins& coins, kernels::AcceptedPath& path) const {
    WrongWalk(tree, rows, coins, path, [&](int32_t, Distribution& target) -> std::optional<int32_t> {
      target.resize((target.size() + tile - 1) / tile * tile, tail_weight);
      return std::nullopt;
    });
  }
};

// Looks up a node's row as in a chain: the node's depth is the offset from the root's row.
struct RowsSlicedAsOfAChain {
  template <typename Rows, typename Coins>
  void operator()(const kernels::TreeToAccept& tree, Rows& rows, Coins& coins, kernels::AcceptedPath& path) const {
    const auto sliced = [&](int32_t, std::span<const int32_t> path_token_ids) {
      const auto wrong_idx = static_cast<int32_t>(path_token_ids.size());
      std::vector<int32_t> wrong_path;
      for (int32_t node = wrong_idx; node > 0; node = tree.parents[node]) wrong_path.push_back(tree.token_ids[node]);
      std::reverse(wrong_path.begin(), wrong_path.end());
      return rows(wrong_idx, wrong_path);
    };
    kernels::WalkByRejection(tree, sliced, coins, path);
  }
};

// Takes a block's coins from the indices of the tokens that they decide.
struct BlockCoinsOfLaterIndices {
  // Coins that move to a new index with every coin.
  template <typename Coins>
  struct Shifted {
    void Begin(uint32_t t) { next = t + 1; }
    bool Accept(double target_prob, double draft_prob) {
      coins.Begin(next++);
      return coins.Accept(target_prob, draft_prob);
    }
    int32_t Draw(std::span<const double> weights) {
      coins.Begin(0);  // leaves the fault of the block's coins as the only one
      return coins.Draw(weights);
    }

    Coins& coins;
    uint32_t next = 0;
  };

  template <typename Rows, typename Coins>
  void operator()(const kernels::TreeToAccept& tree, Rows& rows, Coins& coins, kernels::AcceptedPath& path) const {
    Shifted<Coins> shifted{.coins = coins};
    WalkBlock(tree, rows, shifted, path);
  }
};

}  // namespace foretoken::reference
