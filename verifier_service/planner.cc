// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/planner.h"

#include <algorithm>
#include <bit>

namespace foretoken::verifier {
namespace {

struct Candidate {
  float path_chance;
  int32_t offer_idx;
  int32_t node_idx;
};

// Best first; ties to the lower offer, then to the lower node. A parent's path chance is never below its child's and
// its index never above, so it comes first.
std::vector<Candidate> SortedCandidates(std::span<const TreeOffer> offers) {
  size_t num_nodes = 0;
  for (const TreeOffer& offer : offers) num_nodes += offer.path_chances.size();
  std::vector<Candidate> nodes;
  std::vector<uint64_t> keys;  // the bits of a positive number order as it does, and integers are sorted fast
  nodes.reserve(num_nodes);
  keys.reserve(num_nodes);
  for (size_t i = 0; i < offers.size(); ++i) {
    int32_t node_idx = 0;
    for (const float path_chance : offers[i].path_chances) {
      keys.push_back(uint64_t{~std::bit_cast<uint32_t>(path_chance)} << 32 | nodes.size());
      nodes.push_back({path_chance, static_cast<int32_t>(i), node_idx++});
    }
  }
  std::sort(keys.begin(), keys.end());
  // Beyond an offer's own limit its nodes, the least likely ones, are out.
  std::vector<Candidate> candidates;
  std::vector<int32_t> num_taken(offers.size(), 0);
  candidates.reserve(num_nodes);
  for (const uint64_t key : keys) {
    const Candidate& node = nodes[static_cast<uint32_t>(key)];
    if (++num_taken[node.offer_idx] <= offers[node.offer_idx].max_nodes) candidates.push_back(node);
  }
  return candidates;
}

}  // namespace

std::vector<std::vector<int32_t>> ChooseNodes(std::span<const TreeOffer> offers, const RowBudget& budget,
                                              const StepCost& cost) {
  std::vector<Candidate> candidates = SortedCandidates(offers);
  const int32_t room = std::max(0, budget.max_rows - budget.num_fixed_rows);
  if (candidates.size() > static_cast<size_t>(room)) candidates.resize(room);

  double expected = budget.num_emitting;
  double best_rate = expected / cost.Predict(budget.num_fixed_rows);
  int32_t num_chosen = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    expected += candidates[i].path_chance;
    const int32_t num_nodes = static_cast<int32_t>(i) + 1;
    const double rate = expected / cost.Predict(budget.num_fixed_rows + num_nodes);
    if (rate > best_rate) {
      best_rate = rate;
      num_chosen = num_nodes;
    }
  }
  if (budget.is_curious) {
    const int32_t next_rows = cost.NextBucket(budget.num_fixed_rows + num_chosen);
    num_chosen = std::min(next_rows - budget.num_fixed_rows, static_cast<int32_t>(candidates.size()));
  }

  std::vector<std::vector<int32_t>> chosen(offers.size());
  for (size_t i = 0; i < offers.size(); ++i) chosen[i].reserve(offers[i].path_chances.size());
  for (int32_t i = 0; i < num_chosen; ++i) chosen[candidates[i].offer_idx].push_back(candidates[i].node_idx);
  for (std::vector<int32_t>& nodes : chosen) std::sort(nodes.begin(), nodes.end());
  return chosen;
}

int32_t PromptRows(int32_t num_decoding_rows, int32_t max_rows, float max_growth, const StepCost& cost) {
  const int32_t room = max_rows - num_decoding_rows;
  if (num_decoding_rows == 0 || room <= 1) return room;
  const float limit_ms = max_growth * cost.Predict(num_decoding_rows);
  int32_t num_rows = 1;
  while (num_rows < room && cost.Predict(num_decoding_rows + num_rows + 1) <= limit_ms) ++num_rows;
  return num_rows;
}

}  // namespace foretoken::verifier
