// SPDX-License-Identifier: Apache-2.0
// The verifier's side of the proposal protocol: which proposers exist, which replica mirrors which sequence, and the
// newest tree of each. A broken stream, a full, silent or lying replica just means no trees, until that replica or
// another is there again: its sequences are opened anew by the pool, from its own copy of their tokens.
//
// Example:
//   FT_ASSIGN_OR_RETURN(ProposerSpec spec, ParseProposerSpec("ngram=dns:///proposer:50052"));
//   FT_ASSIGN_OR_RETURN(std::unique_ptr<ProposerPool> pool,
//                       ProposerPool::Create({spec}, {.num_tokens = vocabulary_size, .vocabulary_fingerprint = ...}));
//   pool->Open({.sequence_id = 1, .token_ids = prompt, ...});
//   pool->Advance(1, {first_token}, {.node_budget = 32, .proposers = 1});
//   pool->Flush({.patience = absl::Milliseconds(5), .step = absl::Milliseconds(20)});
//   for (Proposal& proposal : pool->TakeProposals(absl::Milliseconds(5))) ...
//
// How it is built: SessionBook decides what is said to whom, ReplicaStream speaks, and the pool owns the lock, the
// connections and the clock. A name is resolved again every few seconds; each address has its own channel and stream.
// Before a stream opens, DescribeProposer must agree: the method is the spec's, the vocabulary ours.
//
// Threads: as ProposerClient; GetCounters from any thread. One thread of the pool's own keeps connections, another
// resolves names.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "common/rpc/proposal_protocol.h"
#include "common/speculation/token_tree.h"
#include "verifier_service/proposers/answer_pace.h"
#include "verifier_service/proposers/backoff.h"
#include "verifier_service/proposers/duration_histogram.h"
#include "verifier_service/proposers/name_resolver.h"
#include "verifier_service/proposers/proposer_client.h"
#include "verifier_service/proposers/proposer_spec.h"

namespace foretoken::verifier {

struct ProposerPoolOptions {
  int32_t num_tokens = 0;                               // size of the vocabulary; required
  std::string vocabulary_fingerprint;                   // hex; empty: not told, any proposer serves
  std::vector<uint64_t> token_digests;                  // tokenizer::TokenDigests, so that a refusal can name an id
  int32_t max_tree_nodes = speculation::kMaxTreeNodes;  // larger trees are bad trees
  absl::Duration resolve_period = absl::Seconds(5);
  Backoff backoff;  // between attempts to reach a replica, and to place a refused sequence
  absl::Duration describe_timeout = absl::Seconds(5);
  absl::Duration silence_timeout = absl::Seconds(5);     // answers due and none came: the stream is given up
  absl::Duration keepalive_time = absl::Seconds(30);     // a silent connection is pinged so often, and given up where a
  absl::Duration keepalive_timeout = absl::Seconds(10);  // ping is not answered: a host that is gone says nothing
  int32_t max_bad_trees_in_a_row = 8;                    // the stream is given up
  int32_t max_message_bytes = rpc::kMaxProposeResponseBytes;  // of one ProposeResponse
  int32_t max_message_sessions = 16'384;                      // named by one ProposeResponse, or the stream is given up
  AnswerPace::Limits pace;                                    // of what a replica says; beyond it is read later
  NameResolver resolve = ResolveName;
  Clock now = SteadyNow;     // of all timers
  uint64_t jitter_seed = 0;  // 0: drawn
};

// Since the start, per method. Only ever grow.
struct ProposerCounters {
  uint64_t num_sent_bytes = 0;
  uint64_t num_received_bytes = 0;
  uint64_t num_trees = 0;
  uint64_t num_stale_trees = 0;  // of sessions that ended, or older than one we had
  uint64_t num_bad_trees = 0;    // broke a rule, and were dropped
  uint64_t num_refused = 0;      // sessions that the proposer did not take
  rpc::RefusalCounts num_refused_by_reason = {};
  uint64_t num_unknown = 0;         // sessions that it had lost
  uint64_t num_connects = 0;        // streams opened; the first of each replica included
  uint64_t num_breaks = 0;          // streams that ended, by the peer or given up
  uint64_t num_moved_sessions = 0;  // opened anew at another stream
  DurationHistogram round_trips;    // from news of a sequence to the tree that answers it
};

class ProposerPool final : public ProposerClient {
 public:
  // INVALID_ARGUMENT: more than 31 methods, a method twice or called "prediction", an embedded one without a channel,
  // num_tokens not positive.
  static absl::StatusOr<std::unique_ptr<ProposerPool>> Create(std::vector<ProposerSpec> specs,
                                                              ProposerPoolOptions options);
  // Ends all streams; returns when gRPC has let go of them.
  ~ProposerPool() override;

  const std::vector<std::string>& Names() const override;
  void Open(const SequenceIntroduction& introduction) override;
  void Advance(SequenceId sequence_id, std::span<const int32_t> committed, const Ask& ask) override;
  void Close(SequenceId sequence_id) override;
  void Flush(const ComingStep& forecast) override;
  std::vector<Proposal> TakeProposals(absl::Duration max_wait) override;
  std::vector<ProposerStatus> GetStatus() const override;

  // As Names().
  std::vector<ProposerCounters> GetCounters() const;

 private:
  class Keeper;
  explicit ProposerPool(std::unique_ptr<Keeper> keeper);

  const std::unique_ptr<Keeper> keeper_;
};

}  // namespace foretoken::verifier
