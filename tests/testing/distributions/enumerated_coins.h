// SPDX-License-Identifier: Apache-2.0
// Enumerates all outcomes of a random process with their probabilities, which together are its distribution. The
// process asks Branches for every random choice. It runs once per outcome. Each run repeats the choices of the run
// before, up to the last choice with another outcome left. Outcomes of probability 0 are skipped.
//
//   EnumerateOutcomes([&](Branches& branches) {
//     const int32_t side = branches.Choose({.5, .5});
//     distribution.Add({side}, branches.probability());
//   });
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "kernels/check.h"

namespace foretoken::testing {

class Branches {
 public:
  // Returns an index with a weight above 0, with probability weight / sum of weights.
  int32_t Choose(std::span<const double> weights) {
    if (num_made_ == choices_.size()) {
      choices_.emplace_back();
      choices_.back().weights.assign(weights.begin(), weights.end());
      choices_.back().chosen = NextWithWeight(weights, 0);
    }
    const Choice& choice = choices_[num_made_++];
    FT_CHECK(std::equal(weights.begin(), weights.end(), choice.weights.begin(), choice.weights.end()));
    FT_CHECK(choice.chosen < choice.weights.size());
    double sum = 0;
    for (const double weight : weights) sum += weight;
    probability_ *= weights[choice.chosen] / sum;
    return static_cast<int32_t>(choice.chosen);
  }
  int32_t Choose(std::initializer_list<double> weights) {
    return Choose(std::span<const double>(weights.begin(), weights.size()));
  }

  // The probability of the outcome so far.
  double probability() const { return probability_; }

  // Starts the next outcome. Returns false if there is none.
  bool Advance() {
    FT_CHECK(num_made_ == choices_.size());
    num_made_ = 0;
    probability_ = 1;
    while (!choices_.empty()) {
      Choice& last = choices_.back();
      last.chosen = NextWithWeight(last.weights, last.chosen + 1);
      if (last.chosen < last.weights.size()) return true;
      choices_.pop_back();
    }
    return false;
  }

 private:
  struct Choice {
    std::vector<double> weights;
    size_t chosen = 0;
  };

  static size_t NextWithWeight(std::span<const double> weights, size_t from) {
    while (from < weights.size() && weights[from] <= 0) ++from;
    return from;
  }

  std::vector<Choice> choices_;
  size_t num_made_ = 0;
  double probability_ = 1;
};

template <typename Process>
void EnumerateOutcomes(Process&& process) {
  Branches branches;
  do {
    process(branches);
  } while (branches.Advance());
}

// Coins for kernels/rejection_sampling.h, enumerated over all outcomes.
class EnumeratedCoins {
 public:
  explicit EnumeratedCoins(Branches& branches) : branches_(branches) {}

  void Begin(uint32_t t) { begun_.push_back(t); }

  bool Accept(double target_prob, double draft_prob) {
    FT_CHECK(!begun_.empty() && target_prob >= 0 && draft_prob >= 0);
    const double chance = target_prob < draft_prob ? target_prob / draft_prob : target_prob > 0 ? 1 : 0;
    return branches_.Choose({chance, 1 - chance}) == 0;
  }

  int32_t Draw(std::span<const double> weights) {
    FT_CHECK(!begun_.empty());
    return branches_.Choose(weights);
  }

  std::span<const uint32_t> begun() const { return begun_; }  // every index that the rule read coins of, in order

 private:
  Branches& branches_;
  std::vector<uint32_t> begun_;
};

}  // namespace foretoken::testing
