// SPDX-License-Identifier: Apache-2.0
// Coins that are numbers in [0, 1), enumerated over all outcomes. A coin is named by its index and its number at this
// index, like the keyed coins of a server. The class remembers the interval of every coin that was read. A rule that
// reads a coin again, even steps later, gets the same interval, and this fault shows in the distribution.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "tests/testing/distributions/enumerated_coins.h"

namespace foretoken::testing {

class RememberedCoins {
 public:
  explicit RememberedCoins(Branches& branches) : branches_(branches) {}

  void Begin(uint32_t t) {
    t_ = t;
    num_used_ = 0;
  }
  bool Accept(double target_prob, double draft_prob) {
    const double chance = draft_prob > target_prob ? target_prob / draft_prob : target_prob > 0 ? 1 : 0;
    return Split({{chance, 1 - chance}}) == 0;
  }
  int32_t Draw(std::span<const double> weights) { return Split({weights.begin(), weights.end()}); }

  // The number of coins that were read more than once.
  int32_t num_reused() const { return num_reused_; }

 private:
  struct Interval {
    double begin = 0, end = 1;
  };

  // Returns the part of [0, 1) in which the next coin lies. The weights are the lengths of the parts.
  int32_t Split(const std::vector<double>& weights) {
    const auto [coin, is_new] = coins_.try_emplace({t_, num_used_++});
    if (!is_new) ++num_reused_;
    double sum = 0;
    for (const double weight : weights) sum += weight;
    Interval& known = coin->second;
    std::vector<Interval> parts;
    std::vector<double> lengths;
    double begin = 0;
    for (const double weight : weights) {
      const double end = begin + weight / sum;
      parts.push_back({std::max(begin, known.begin), std::min(end, known.end)});
      lengths.push_back(std::max(0.0, parts.back().end - parts.back().begin));
      begin = end;
    }
    const int32_t chosen = branches_.Choose(lengths);
    known = parts[chosen];
    return chosen;
  }

  Branches& branches_;
  std::map<std::pair<uint32_t, uint32_t>, Interval> coins_;
  uint32_t t_ = 0;
  uint32_t num_used_ = 0;
  int32_t num_reused_ = 0;
};

}  // namespace foretoken::testing
