// SPDX-License-Identifier: Apache-2.0
// The engine's interface to proposers. The engine reports the progress of its sequences and takes the trees that have
// arrived. It waits for a peer only if it asks to, and no fault of a proposer reaches it.
//
// Threads: GetStatus may be called from any thread. One thread, the engine's, calls everything else; no call blocks on
// the network.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/speculation/target_features.h"
#include "common/speculation/token_tree.h"
#include "kernels/ops.h"

namespace foretoken::verifier {

using SequenceId = uint64_t;

// The proposers that receive a sequence's new tokens now, and the size of the trees that the engine wants. A proposer
// that is not asked has no work for the sequence. It receives the tokens when it is asked next, or when the sequence
// ends.
struct Ask {
  int32_t node_budget = 0;  // the largest tree wanted, in nodes; 0: only tokens, no tree
  uint32_t proposers = 0;   // bit per Names() entry
  // [ceil(V / 32)] The tokens that may come next: bit id % 32 of word id / 32. Empty: any token, or the mask that the
  // sequence has already if no tokens were committed since.
  std::span<const uint32_t> allowed_tokens = {};
};

// The engine's forecast of the coming step, when it sends the tokens of the last one.
struct ComingStep {
  absl::Duration patience;  // how long the engine waits for answers before the step
  absl::Duration step;      // the expected duration of the step
};
// The names of the engine's own proposers, behind those of ProposerClient: a request's prediction and its grammar. No
// method has these names.
inline constexpr absl::string_view kPredictionName = "prediction";
inline constexpr absl::string_view kGrammarName = "grammar";
inline constexpr size_t kNumOwnProposers = 2;

// The first message about a sequence to a proposer.
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
  std::string traceparent, tracestate;
  uint32_t proposers = ~0u;       // may serve the sequence: bit per Names() entry; other bits are ignored
  uint32_t told_proposers = ~0u;  // among them, receive the tokens now; as Ask::proposers
  std::span<const uint32_t> allowed_tokens = {};  // the tokens that may come after token_ids; as Ask::allowed_tokens
};

// The features that a drafter reads. The engine tells sources apart by their addresses.
using FeatureSource = std::shared_ptr<const speculation::TargetFeatures>;

// A session of a proposer: the features that it lacks and may receive now.
struct FeatureDemand {
  SequenceId sequence_id = 0;
  const speculation::TargetFeatures* source = nullptr;  // one of FeatureSources()
  int32_t begin = 0, end = 0;                           // positions [begin, end)
  uint64_t replica_id = 0, session_id = 0;              // for GiveFeatures
};

// A tree that arrived and passed Validate. Its nodes have this proposer's bit. Under the keyed draw, tree.sampled is
// empty.
struct Proposal {
  SequenceId sequence_id = 0;
  uint32_t proposer_idx = 0;  // of ProposerClient::Names()
  speculation::TokenTree tree;
  absl::Time asked, arrived;  // equal if nobody asked for a tree at its position
};

// The proposers that have no session for a sequence, so that no tree of theirs can come: bit per Names() entry.
struct MissingSessions {
  uint32_t absent = 0;    // no replica is connected
  uint32_t refusing = 0;  // every connected replica is full, refused the sequence, or takes no context of its length
};

struct ProposerStatus {
  std::string name;           // the method
  int32_t num_connected = 0;  // replicas
  size_t num_waiting = 0;     // sequences without a session, though a connected replica takes contexts of their length
};

// Implemented by the pool and by the in-process proposers of the tests.
class ProposerClient {
 public:
  virtual ~ProposerClient() = default;

  // The method names, at most 30; they never change. A proposer's bit is its index here. The next bits belong to the
  // engine's own.
  virtual const std::vector<std::string>& Names() const = 0;

  virtual void Open(const SequenceIntroduction& introduction) = 0;
  // `committed` are the tokens since the last call for this sequence.
  virtual void Advance(SequenceId sequence_id, std::span<const int32_t> committed, const Ask& ask) = 0;
  virtual void Close(SequenceId sequence_id) = 0;

  // Sends the events of Open, Advance and Close since the last Flush, one message per stream.
  virtual void Flush(const ComingStep& forecast) = 0;

  // Returns the trees that arrived since the last call. Waits at most max_wait for the answers that are still due from
  // healthy replicas. Returns at once if no answer is due.
  virtual std::vector<Proposal> TakeProposals(absl::Duration max_wait) = 0;

  // The features that connected proposers need. A proposer that has gone still counts for a while, so that it finds the
  // features of running sequences when it comes back.
  virtual std::vector<FeatureSource> FeatureSources() { return {}; }
  // The proposers that read a source's features: bit i is the proposer of index i.
  virtual uint32_t ReadersOf(const FeatureSource& /*source*/) const { return ~uint32_t{0}; }
  // The engine has no room for what the features take: a source in FeatureSources(). `why` goes on a sentence about the
  // proposer.
  virtual void RefuseFeatures(const FeatureSource& /*source*/, const std::string& /*why*/) {}
  // The features that sessions lack, of sources in FeatureSources(). The engine answers those that it can before Flush.
  virtual std::vector<FeatureDemand> FeatureDemands() { return {}; }
  // Features of positions from `begin` on, [n, width] bf16, for at most as many positions as the demand has. `begin` is
  // beyond the demand's where the engine does not have the earlier ones, and may be beyond the demand's end.
  virtual void GiveFeatures(const FeatureDemand& /*demand*/, int32_t /*begin*/, std::vector<uint16_t> /*values*/) {}

  // Of the proposers that may serve the sequence, those without a session for it now. Unknown sequences miss none.
  virtual MissingSessions FindMissing(SequenceId /*sequence_id*/) const { return {}; }

  virtual std::vector<ProposerStatus> GetStatus() const = 0;
};

}  // namespace foretoken::verifier
