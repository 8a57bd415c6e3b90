// SPDX-License-Identifier: Apache-2.0
// What the scores of a node's children are worth: how likely each is the token that the target commits, learned from
// what was committed.
//
//   chance(i) = exp(score(i) / tau) / (sum over children of exp(score / tau) + K exp(lowest score / tau + rest))
//
// The last term stands for all other tokens: they score below the lowest of K children, and the more of these there
// are, the slower the scores of the others fall. tau says how far the draft can be trusted, rest how much lies beyond.
// Both follow the gradient of the committed token's log likelihood (AdaGrad: Duchi, Hazan, Singer 2011). The likelihood
// is concave in (1 / tau, rest), so there is one answer to find.
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
  // The children's chances: each in (0, 1], their sum at most 1. Where one score is not a number, the
  // model ignores all of them: every chance is the least one, and nothing is learned.
  std::vector<float> Chances(std::span<const float> scores) const;
  // The committed token was the child at this index, or none of them.
  void Observe(std::span<const float> scores, std::optional<size_t> committed);

  double tau() const { return 1 / inverse_tau_; }

 private:
  // Chances of the children, and of the rest at the end.
  std::vector<double> Distribution(std::span<const float> scores) const;

  double inverse_tau_ = 0.6;  // as of a draft that is right more often than not
  double rest_ = -3;
  double inverse_tau_squares_ = 1;  // of the gradients so far
  double rest_squares_ = 1;
};

}  // namespace foretoken::proposer
