// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/planner/planner.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

namespace foretoken::verifier {
namespace {

struct Candidate {
  float path_chance;
  int32_t offer_idx;
  int32_t node_idx;
};

// Yields all nodes, best first. Ties go to the lower offer, then to the lower node. A parent's path chance is at least
// its child's and its index is lower, so the parent comes first. Most nodes are never taken, so nodes go into buckets
// of similar chances, and a bucket is sorted only when its turn comes.
class BestFirst {
 public:
  explicit BestFirst(std::span<const TreeOffer> offers) {
    std::array<uint32_t, kNumBuckets> sizes{};
    uint32_t num_nodes = 0;
    for (const TreeOffer& offer : offers) {
      for (const float path_chance : offer.path_chances) ++sizes[Bucket(path_chance)];
      num_nodes += static_cast<uint32_t>(offer.path_chances.size());
    }
    uint32_t end = 0;
    for (size_t i = 0; i < kNumBuckets; ++i) ends_[i] = std::exchange(end, end + sizes[i]);
    keys_.resize(num_nodes);
    for (size_t i = 0; i < offers.size(); ++i) {
      uint64_t place = uint64_t{i} << kNodeBits;  // of the node among all: by offer, then by node
      for (const float path_chance : offers[i].path_chances) {
        // The bits of positive floats have the order of their values, and integers sort fast.
        keys_[ends_[Bucket(path_chance)]++] = uint64_t{~std::bit_cast<uint32_t>(path_chance)} << 32 | place++;
      }
    }
  }

  std::optional<Candidate> Next() {
    if (next_ == keys_.size()) return std::nullopt;
    while (next_ == sorted_end_) {
      std::sort(keys_.begin() + sorted_end_, keys_.begin() + ends_[next_bucket_]);
      sorted_end_ = ends_[next_bucket_++];
    }
    const uint64_t key = keys_[next_++];
    const auto place = static_cast<uint32_t>(key);
    return Candidate{.path_chance = std::bit_cast<float>(~static_cast<uint32_t>(key >> 32)),
                     .offer_idx = static_cast<int32_t>(place >> kNodeBits),
                     .node_idx = static_cast<int32_t>(place & ((1u << kNodeBits) - 1))};
  }

 private:
  static constexpr uint32_t kBitsOfOne = 0x3F800000;
  static constexpr int kBucketBits = 20;  // eight buckets per factor of two
  static constexpr int kNodeBits = 16;    // merged trees have at most 32 times 1,024 nodes
  static constexpr size_t kNumBuckets = (kBitsOfOne >> kBucketBits) + 1;

  static size_t Bucket(float path_chance) {
    return (kBitsOfOne - std::min(kBitsOfOne, std::bit_cast<uint32_t>(path_chance))) >> kBucketBits;
  }

  std::vector<uint64_t> keys_;  // by bucket, ascending: the best chance first
  std::array<uint32_t, kNumBuckets> ends_;
  uint32_t next_ = 0, sorted_end_ = 0;
  size_t next_bucket_ = 0;
};

// The candidates in the order in which they may be taken. The first num_certain nodes are taken at any cost.
struct CandidateOrder {
  std::vector<Candidate> candidates;
  int32_t num_certain = 0;
};

CandidateOrder OrderCandidates(std::span<const TreeOffer> offers, int32_t room) {
  CandidateOrder order;
  order.candidates.reserve(static_cast<size_t>(room));
  std::vector<int32_t> num_taken(offers.size(), 0);
  const auto take = [&](bool takes_all) {
    BestFirst nodes(offers);
    while (static_cast<int32_t>(order.candidates.size()) < room) {
      const std::optional<Candidate> node = nodes.Next();
      if (!node.has_value()) return;
      const TreeOffer& offer = offers[node->offer_idx];
      if (offer.takes_all != takes_all || num_taken[node->offer_idx] >= offer.max_nodes) continue;
      ++num_taken[node->offer_idx];
      order.candidates.push_back(*node);
    }
  };
  const auto takes_all = [](const TreeOffer& offer) { return offer.takes_all; };
  if (std::any_of(offers.begin(), offers.end(), takes_all)) take(/*takes_all=*/true);
  order.num_certain = static_cast<int32_t>(order.candidates.size());
  take(/*takes_all=*/false);
  return order;
}

// Returns the length of the prefix with the best rate, among the prefixes that hold all certain nodes.
int32_t BestPrefix(const CandidateOrder& order, std::span<const TreeOffer> offers, const StepBudget& budget,
                   const StepCost& cost) {
  StepLoad load = budget.fixed;
  double expected = budget.num_decoding;
  double other_ms = budget.between_ms - budget.prompt_ms;
  double best_rate = 0;
  int32_t num_best = 0;
  for (int32_t num_nodes = 0;; ++num_nodes) {
    const double rate = expected / (cost.Predict(load) + other_ms);
    if (num_nodes == order.num_certain || (num_nodes > order.num_certain && rate > best_rate)) {
      best_rate = rate;
      num_best = num_nodes;
    }
    if (num_nodes == static_cast<int32_t>(order.candidates.size())) return num_best;
    const TreeOffer& offer = offers[order.candidates[num_nodes].offer_idx];
    expected += order.candidates[num_nodes].path_chance;
    ++load.num_rows;
    load.num_positions += offer.num_positions;
    other_ms += offer.node_ms;
  }
}

}  // namespace

std::vector<std::vector<int32_t>> ChooseNodes(std::span<const TreeOffer> offers, const StepBudget& budget,
                                              const StepCost& cost) {
  const CandidateOrder order = OrderCandidates(offers, std::max(0, budget.max_rows - budget.fixed.num_rows));
  int32_t num_chosen = BestPrefix(order, offers, budget, cost);
  if (budget.is_curious) {
    const int32_t next_rows = cost.NextBucket(budget.fixed.num_rows + num_chosen);
    num_chosen = std::min(next_rows - budget.fixed.num_rows, static_cast<int32_t>(order.candidates.size()));
  }
  const auto nodes_taken = std::span(order.candidates).first(num_chosen);
  std::vector<std::vector<int32_t>> chosen(offers.size());
  std::vector<size_t> num_nodes(offers.size(), 0);
  for (const Candidate& node : nodes_taken) ++num_nodes[node.offer_idx];
  for (size_t i = 0; i < offers.size(); ++i) chosen[i].reserve(num_nodes[i]);
  for (const Candidate& node : nodes_taken) chosen[node.offer_idx].push_back(node.node_idx);
  for (std::vector<int32_t>& nodes : chosen) std::sort(nodes.begin(), nodes.end());
  return chosen;
}

}  // namespace foretoken::verifier
