// SPDX-License-Identifier: Apache-2.0
// The verifier's side of the proposal protocol: the proposers, the replica that mirrors each sequence, and the newest
// tree of each sequence. A broken stream, or a full, silent or lying replica, only means that no trees arrive. As soon
// as a healthy replica exists, the pool opens the sequences there from its own copy of their tokens.
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
// Parts: SessionBook chooses the messages for each replica, ReplicaStream sends them, and the pool owns the lock, the
// connections and the clock. The pool resolves names again every few seconds; each address has its own channel and
// stream. Before a stream opens, the answer of DescribeProposer must match the spec's method and our vocabulary.
//
// Threads: as ProposerClient; GetCounters from any thread. The pool has one thread that keeps connections and one that
// resolves names.
#pragma once

#include <grpcpp/security/credentials.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "common/rpc/feature_conversion.h"
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
  std::string vocabulary_fingerprint;                   // hex; empty: not sent, any vocabulary matches
  std::vector<uint64_t> token_digests;                  // tokenizer::TokenDigests, so that a refusal can name an id
  int32_t max_tree_nodes = speculation::kMaxTreeNodes;  // larger trees are bad trees
  absl::Duration resolve_period = absl::Seconds(5);
  Backoff backoff;  // after a broken stream or a description that does not match, and to place a refused sequence
  // Between attempts to reach a replica that does not answer. Such an attempt costs little, and a short pause lets a
  // replica that returns be used soon.
  Backoff reach = {.initial = absl::Milliseconds(100), .max = absl::Milliseconds(500)};
  absl::Duration connect_timeout = absl::Seconds(2);
  absl::Duration describe_timeout = absl::Seconds(5);
  absl::Duration silence_timeout = absl::Seconds(5);          // answers are due and none came: the pool ends the stream
  absl::Duration keepalive_time = absl::Seconds(30);          // between pings on a silent connection
  absl::Duration keepalive_timeout = absl::Seconds(10);       // for a ping's answer; then the connection is closed
  int32_t max_bad_trees_in_a_row = 8;                         // then the pool ends the stream
  int32_t max_message_bytes = rpc::kMaxProposeResponseBytes;  // of one ProposeResponse
  int32_t max_message_sessions = 16'384;                      // in one ProposeResponse; more end the stream
  AnswerPace::Limits pace;                                    // for a replica's messages; beyond it reads are delayed
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  NameResolver resolve = ResolveName;  // may run after the pool is destroyed, so it must own what it uses
  size_t max_addresses = 64;           // of one DNS name that are used at a time; further ones wait
  // Set: the engine makes features for drafters that read the target's hidden states.
  std::optional<rpc::TargetShape> target;
  int32_t max_feature_sources = 4;                // kinds of features at a time; each takes memory per K/V slot
  size_t max_projection_bytes = size_t{1} << 30;  // of one drafter
  std::string projection_directory;               // rpc::ProjectionPath; empty: none
  // To read one of max_projection_bytes; a smaller one gets its part, and at least 30 s. A piece has describe_timeout.
  absl::Duration projection_timeout = absl::Minutes(20);
  Clock now = SteadyNow;     // of all timers
  uint64_t jitter_seed = 0;  // 0: drawn
};

// Counters since the start, per method. They never decrease.
struct ProposerCounters {
  uint64_t num_sent_bytes = 0;
  uint64_t num_feature_bytes = 0;  // among them, values of features
  uint64_t num_received_bytes = 0;
  uint64_t num_questions = 0;     // a session was asked for a tree at a new position
  uint64_t num_late_answers = 0;  // questions without an answer when the session's next one was asked
  uint64_t num_trees = 0;
  uint64_t num_stale_trees = 0;  // the session had ended, or a newer tree was here
  uint64_t num_bad_trees = 0;    // broke a rule; the pool dropped them
  uint64_t num_refused = 0;      // sessions that the proposer refused
  rpc::RefusalCounts num_refused_by_reason = {};
  uint64_t num_unknown = 0;         // sessions that the proposer had lost
  uint64_t num_connects = 0;        // streams opened, including the first of each replica
  uint64_t num_breaks = 0;          // streams that the peer or the pool ended
  uint64_t num_moved_sessions = 0;  // sessions opened anew on another stream
  DurationHistogram round_trips;    // from sending new tokens to the tree that answers
};

// Returns INVALID_ARGUMENT for more than 30 methods, a repeated method, or a method with the name of one of the
// verifier's own proposers.
absl::Status CheckSpecs(const std::vector<ProposerSpec>& specs);

class ProposerPool final : public ProposerClient {
 public:
  // Returns the errors of CheckSpecs, and INVALID_ARGUMENT for an embedded proposer without a channel or num_tokens
  // below 1.
  static absl::StatusOr<std::unique_ptr<ProposerPool>> Create(std::vector<ProposerSpec> specs,
                                                              ProposerPoolOptions options);
  // Ends all streams. Returns after gRPC has released them. Waits at most a second for a lookup of names.
  ~ProposerPool() override;

  const std::vector<std::string>& Names() const override;
  void Open(const SequenceIntroduction& introduction) override;
  void Advance(SequenceId sequence_id, std::span<const int32_t> committed, const Ask& ask) override;
  void Close(SequenceId sequence_id) override;
  void Flush(const ComingStep& forecast) override;
  std::vector<Proposal> TakeProposals(absl::Duration max_wait) override;
  std::vector<FeatureSource> FeatureSources() override;
  uint32_t ReadersOf(const FeatureSource& source) const override;
  void RefuseFeatures(const FeatureSource& source, const std::string& why) override;
  std::vector<FeatureDemand> FeatureDemands() override;
  void GiveFeatures(const FeatureDemand& demand, int32_t begin, std::vector<uint16_t> values) override;
  MissingSessions FindMissing(SequenceId sequence_id) const override;
  std::vector<ProposerStatus> GetStatus() const override;

  // One entry per name, in the order of Names().
  std::vector<ProposerCounters> GetCounters() const;

 private:
  class Keeper;
  explicit ProposerPool(std::unique_ptr<Keeper> keeper);

  const std::unique_ptr<Keeper> keeper_;
};

}  // namespace foretoken::verifier
