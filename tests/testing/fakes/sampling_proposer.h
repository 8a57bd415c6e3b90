// SPDX-License-Identifier: Apache-2.0
// A proposer that samples as a draft model does, for tests that serve: an engine or a verifier asks it over and over.
// It draws children without replacement from the top_k of a draft distribution, rounded as it is sent, and sends the
// distribution. It keeps all rules of DRAW_METHOD_SAMPLED in the protocol. Under the keyed draw its children are the
// most likely tokens of the same distribution, as guesses.
//
// It makes one draw, by its noise. SmallProposer (distributions/small_proposer.h) makes every possible draw, for tests
// that add up exact probabilities.
//
// Noise is keyed by (seed, method, the node's whole context, number of the child, sample index). So a node that is
// drawn again gets the same children, and neither two nodes nor two proposers share noise.
//
// Example:
//   SamplingProposer proposer(HashDistribution(4096), {.top_k = 8, .children_by_depth = {3, 2, 1}});
//
// Threads: as GuessingProposer. One thread at a time uses a distribution.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tests/testing/fakes/guessing_proposer.h"

namespace foretoken::testing {

// Returns the logits of the token after a context. [V]
using LogitDistribution = std::function<std::vector<float>(std::span<const int32_t> context)>;

// A distribution without a model: a function of the last two tokens, with one clearly most likely token.
LogitDistribution HashDistribution(int32_t num_tokens);
// The model of a checkpoint directory. It does not compute the common beginning of two consecutive contexts again.
LogitDistribution ModelDistribution(const std::string& directory);
// Keeps every result, because samples of one prompt ask for the same few contexts again.
LogitDistribution Remembered(LogitDistribution distribution);

struct SamplingProposerOptions {
  std::string method = "sampling";
  int32_t top_k = 8;
  // [depth] the number of children, from the root on; fewer if fewer tokens have a probability.
  std::vector<int32_t> children_by_depth = {3, 2, 1};
};

class SamplingProposer : public GuessingProposer {
 public:
  SamplingProposer(LogitDistribution distribution, const SamplingProposerOptions& options);
};

// Returns the top_k of softmax(logits / temperature), rounded to f32, without entries that round to 0.
speculation::DraftDistribution Truncate(std::span<const float> logits, int32_t top_k, float temperature);

// Returns the indices of at most `num_children` entries, drawn without replacement: each from the rest of the
// distribution. `uniform(i)` in [0, 1) is the i-th child's noise.
std::vector<size_t> SampleWithoutReplacement(std::span<const float> probs, int32_t num_children,
                                             const std::function<double(uint32_t i)>& uniform);

}  // namespace foretoken::testing
