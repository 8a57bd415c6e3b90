// SPDX-License-Identifier: Apache-2.0
// A proposer that samples: it draws children without replacement from the top_k of a draft distribution, rounded as
// they are sent, and says so. It keeps to all that rejection sampling asks of a proposer (DRAW_METHOD_SAMPLED in the
// protocol). Under the keyed draw its children are the top of the same distribution, as guesses.
//
// Noise is keyed by (seed, method, the node's whole context, number of the child, sample index): a node that is drawn
// again gets the same children, and no two nodes share noise, nor do two proposers.
//
// Example:
//   SamplingProposer proposer(HashDistribution(4096), {.top_k = 8, .children_by_depth = {3, 2, 1}});
//
// Threads: as Proposer; one distribution is asked by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::testing {

// Logits of what comes after a context. [V]
using LogitDistribution = std::function<std::vector<float>(std::span<const int32_t> context)>;

// A distribution without a model: a function of the last two tokens, with a clear favourite.
LogitDistribution HashDistribution(int32_t num_tokens);
// The model of a checkpoint directory. What a context shares with the one asked for before it is not computed again.
LogitDistribution ModelDistribution(const std::string& directory);

struct SamplingProposerOptions {
  std::string method = "sampling";
  int32_t top_k = 8;
  // Of a node at that depth, the root's first; fewer where less has mass.
  std::vector<int32_t> children_by_depth = {3, 2, 1};
};

class SamplingProposer : public proposer::Proposer {
 public:
  SamplingProposer(LogitDistribution distribution, SamplingProposerOptions options);

  const proposer::ProposerDescription& Describe() const override { return description_; }
  std::unique_ptr<proposer::Session> Open(const proposer::SessionIntroduction& introduction) override;
  std::vector<speculation::TokenTree> Propose(std::span<const proposer::ProposalRequest> requests) override;

 private:
  class Mirror;
  double Uniform(const Mirror& mirror, std::span<const int32_t> context, uint32_t child) const;
  speculation::TokenTree Grow(const Mirror& mirror, int32_t node_budget);

  proposer::ProposerDescription description_;
  SamplingProposerOptions options_;
  absl::Mutex mutex_;
  LogitDistribution distribution_;  // one caller at a time
};

// The top_k of softmax(logits / temperature), rounded to f32; entries that round to nothing are left out.
speculation::DraftDistribution Truncate(std::span<const float> logits, int32_t top_k, float temperature);

// Places of at most `num_children` entries, drawn without replacement: from the distribution, then from what is left of
// it. `uniform(i)` in [0, 1) is the i-th child's noise.
std::vector<size_t> SampleWithoutReplacement(std::span<const float> probs, int32_t num_children,
                                             const std::function<double(uint32_t i)>& uniform);

}  // namespace foretoken::testing
