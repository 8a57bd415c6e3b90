// SPDX-License-Identifier: Apache-2.0
// What the engine needs of proposers. It says what happened to its sequences and takes what trees there are; it never
// waits for a peer unless it asks to, and no fault of a proposer reaches it.
//
// Threads: Open, Advance, Close, Flush and TakeProposals are called by one thread, the engine's, and never block on the
// network. GetStatus may be called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/speculation/token_tree.h"
#include "kernels/ops.h"

namespace foretoken::verifier {

using SequenceId = uint64_t;

// Which proposers are told of a sequence's news now, and what is wanted of them. The others learn of it when they are
// told next, or when the sequence ends: one that is not asked has nothing to do for it meanwhile.
struct Ask {
  int32_t node_budget = 0;  // of the trees that are wanted; 0: read along, no tree
  uint32_t proposers = 0;   // bit per Names() entry
};

// What is known of the coming step when the news of the last one goes out.
struct ComingStep {
  absl::Duration patience;  // how long answers are waited for before it starts
  absl::Duration step;      // how long it is going to take
};
// What a request's own prediction is called among proposers. No method is called so.
inline constexpr absl::string_view kPredictionName = "prediction";

// What a proposer is told when a sequence begins.
struct SequenceIntroduction {
  SequenceId sequence_id = 0;
  std::span<const int32_t> token_ids;  // prompt, or all committed tokens
  kernels::VerificationRule rule = kernels::VerificationRule::kKeyedDraw;
  uint64_t seed = 0;
  uint32_t sample_index = 0;
  float temperature = 1;
  int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  std::string tenant;
  std::string traceparent;
  uint32_t proposers = ~0u;       // who may serve it: bit per Names() entry, others are ignored
  uint32_t told_proposers = ~0u;  // of these, who is told at once; as Ask::proposers
};

// A tree that arrived and passed Validate. Its nodes have this proposer's bit; tree.sampled is empty under the
// keyed draw.
struct Proposal {
  SequenceId sequence_id = 0;
  uint32_t proposer_idx = 0;  // of ProposerClient::Names()
  speculation::TokenTree tree;
};

struct ProposerStatus {
  std::string name;  // the method
  int32_t num_connected = 0;
};

// What the engine needs of proposers; the pool and the tests' scripted proposers stand behind it.
class ProposerClient {
 public:
  virtual ~ProposerClient() = default;

  // Method names, fixed for life; at most 31. A proposal's bit is its index here; the bit behind them is the engine's.
  virtual const std::vector<std::string>& Names() const = 0;

  virtual void Open(const SequenceIntroduction& introduction) = 0;
  // `committed` are the tokens since the last call for this sequence.
  virtual void Advance(SequenceId sequence_id, std::span<const int32_t> committed, const Ask& ask) = 0;
  virtual void Close(SequenceId sequence_id) = 0;

  // Sends what Open, Advance and Close have said since the last Flush, one message per stream.
  virtual void Flush(const ComingStep& forecast) = 0;

  // Every tree that arrived since the last call. Waits at most max_wait for the answers that are still due from healthy
  // replicas; returns at once when none are.
  virtual std::vector<Proposal> TakeProposals(absl::Duration max_wait) = 0;

  virtual std::vector<ProposerStatus> GetStatus() const = 0;
};

}  // namespace foretoken::verifier
