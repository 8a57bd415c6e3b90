// SPDX-License-Identifier: Apache-2.0
// Turns the scores of a node's children into chances: how likely the target commits each child. The model learns from
// committed tokens.
//
//   chance(i) = exp(score(i) / tau) / (sum over children of exp(score / tau) + K exp(lowest score / tau + rest))
//
// The last term is the weight of all other tokens. Their scores are below the lowest score of the K children, and with
// more children the remaining scores fall more slowly. tau says how far the draft can be trusted. rest is the weight of
// the other tokens. Both follow the gradient of the committed token's log likelihood (AdaGrad: Duchi, Hazan, Singer
// 2011, with sums that forget). The likelihood is concave in (1 / tau, rest), so it has one maximum.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace foretoken::proposer {

class ChanceModel {
 public:
  // The children's chances: each in (0, 1], their sum at most 1. If a score is not a number, the model ignores all
  // scores: every chance is the least one, and the model learns nothing.
  std::vector<float> Chances(std::span<const float> scores) const;
  // Learns from a committed token. `committed` is the index of the child with that token; unset: no child has it.
  void Observe(std::span<const float> scores, std::optional<size_t> committed);

  double tau() const { return 1 / inverse_tau_; }

 private:
  // The chances of the children, then the chance of all other tokens.
  std::vector<double> Distribution(std::span<const float> scores) const;

  double inverse_tau_ = 0.6;  // the value for a draft that is right more often than not
  double rest_ = -3;
  double inverse_tau_squares_ = 1;  // sums of squared gradients, which the newest count most in
  double rest_squares_ = 1;
};

}  // namespace foretoken::proposer
