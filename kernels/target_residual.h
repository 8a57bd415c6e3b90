// SPDX-License-Identifier: Apache-2.0
// The two distributions that a ratio test compares while it tests the children of a node: the rest of target_prob and
// the rest of draft_prob. Both are kept unnormalised, so that a rejection changes only the drafted tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace foretoken::kernels {

// Adds in eight chains, which a processor computes side by side, in a fixed order.
inline double SumOf(std::span<const double> values) {
  double sums[8] = {};
  const size_t num_whole = values.size() / 8;
  for (size_t i = 0; i < num_whole; ++i) {
    for (size_t j = 0; j < 8; ++j) sums[j] += values[8 * i + j];
  }
  for (size_t j = 0; j < values.size() % 8; ++j) sums[j] += values[8 * num_whole + j];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Q: the distribution from which one proposer sampled a node's children, without replacement. A guess is a point mass.
class DrawnDistribution {
 public:
  explicit DrawnDistribution(const DrawnChildren& drawn)
      : is_point_(drawn.draft_probs.empty()),
        token_ids_(drawn.draft_token_ids),
        probs_(drawn.draft_probs.begin(), drawn.draft_probs.end()),
        mass_(SumOf(probs_)) {}

  bool is_point() const { return is_point_; }
  std::span<const int32_t> token_ids() const { return token_ids_; }  // [k] empty for a point
  std::span<const double> probs() const { return probs_; }           // [k] unnormalised
  double mass() const { return mass_; }

  double Prob(int32_t token_id) const {
    if (is_point_) return 1;
    const size_t i = Find(token_id);
    return i < probs_.size() ? probs_[i] / mass_ : 0;
  }

  // Q <- norm(Q with this token's probability set to 0).
  void Remove(int32_t token_id) {
    const size_t i = Find(token_id);
    if (i == probs_.size()) return;
    probs_[i] = 0;
    mass_ = SumOf(probs_);
  }

 private:
  size_t Find(int32_t token_id) const {
    return std::find(token_ids_.begin(), token_ids_.end(), token_id) - token_ids_.begin();
  }

  bool is_point_;
  std::span<const int32_t> token_ids_;
  std::vector<double> probs_;
  double mass_;
};

// P: the rest of target_prob.
class TargetResidual {
 public:
  // [V] at least 0, with a positive sum. This object writes to them.
  explicit TargetResidual(std::span<double> weights) : weights_(weights), mass_(SumOf(weights)) {}

  std::span<const double> weights() const { return weights_; }
  bool is_empty() const { return mass_ <= 0; }
  double Prob(int32_t token_id) const { return weights_[token_id] / mass_; }

  // P <- norm((P - Q)+).
  void Subtract(const DrawnDistribution& draft) {
    const double unit = mass_ / draft.mass();
    const double before = mass_;
    for (size_t i = 0; i < draft.token_ids().size(); ++i) Take(draft.token_ids()[i], draft.probs()[i] * unit);
    RefreshMass(before);
  }

  // P <- norm(P with this token's probability set to 0).
  void Remove(int32_t token_id) {
    const double before = mass_;
    Take(token_id, weights_[token_id]);
    RefreshMass(before);
  }

 private:
  static constexpr double kSmallPart = 1e-3;

  void Take(int32_t token_id, double at_most) {
    const double taken = std::min(weights_[token_id], at_most);
    weights_[token_id] -= taken;
    mass_ -= taken;
  }

  // When little mass is left, cancellation may have made it noise; then the sum is computed anew.
  void RefreshMass(double before) {
    if (mass_ < kSmallPart * before) mass_ = SumOf(weights_);
  }

  std::span<double> weights_;
  double mass_;
};

}  // namespace foretoken::kernels
