// SPDX-License-Identifier: Apache-2.0
// The suffix proposer: a sequence goes on as it did, or as finished outputs did, where its last tokens occurred before.
//
// Every session has a suffix tree of its prompt and output, and all finished outputs are in one tree with counts
// (SuffixMemory), apart by tenant. The longest end of the sequence that occurs in either is followed; trees are grown
// best path chance first, as deep as the match is long times depth_per_match (GrowSuffixTree). Why a suffix tree, and
// what it costs, is said in suffix_tree.h.
//
// What is learned. When a session ends, whatever the reason, the tokens that came after its opening context: its
// output, with the last few tokens before it, so that an output's beginning can be found. A session that is opened
// again with what was generated meanwhile (the sequence was preempted, or its stream broke) has that in its opening
// context, so nothing is learned twice. A thread of its own learns, so ending a session costs nothing.
//
// Vocabularies. Ids mean nothing elsewhere, so texts are apart by vocabulary as they are by tenant: verifiers of
// several vocabularies may share a proposer, and one whose stream does not say which it is shares with others of that
// kind.
//
// Restarts. With a snapshot_path the outputs are written there from time to time and at the end, and read at the start
// (suffix_snapshot.h). One proposer has the file.
//
// Memory: of shared_tokens outputs' tokens some 20 to 50 bytes each; as much for each token of an open session's
// context. Source: SuffixDecoding (2411.04975).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/telemetry/metrics.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::proposer {

struct SuffixOptions {
  int32_t max_depth = 64;           // tokens of the longest match; 2 to SuffixTree::kMaxDepth
  float depth_per_match = 4;        // tokens of depth per token of match; above 0
  float min_path_chance = 0.01f;    // guesses that are reached more rarely are not made; in [0, 1)
  int64_t shared_tokens = 1 << 24;  // finished outputs remembered, over all tenants; 1,024 to 2^30
  std::string snapshot_path = {};   // where they survive a restart; empty: nowhere
  absl::Duration snapshot_interval = absl::Minutes(5);
};

// INVALID_ARGUMENT names the field.
absl::Status Validate(const SuffixOptions& options);

class SuffixLearner;
class SuffixMemory;
class SuffixMetrics;
class SuffixSnapshotFile;

class SuffixProposer : public Proposer {
 public:
  // The options must be valid. The metrics outlive the proposer. Errors: those of SuffixSnapshotFile::Open.
  static absl::StatusOr<std::unique_ptr<SuffixProposer>> Create(const SuffixOptions& options,
                                                                telemetry::Metrics* metrics = nullptr);
  // Of valid options, and a memory that survives nowhere, whatever they say. Null metrics: nobody reads any.
  explicit SuffixProposer(const SuffixOptions& options, telemetry::Metrics* metrics = nullptr);
  // The same with a memory that survives in the file.
  SuffixProposer(const SuffixOptions& options, telemetry::Metrics* metrics, std::unique_ptr<SuffixSnapshotFile> file);
  // Writes the last snapshot. No session is left.
  ~SuffixProposer() override;

  const ProposerDescription& Describe() const override { return description_; }
  std::unique_ptr<Session> Open(const SessionIntroduction& introduction) override;
  std::vector<speculation::TokenTree> Propose(std::span<const ProposalRequest> requests) override;

  // Returns when all sessions that have ended are learned.
  void WaitUntilLearned();
  // Of the memory of finished outputs.
  size_t num_bytes() const;

 private:
  const SuffixOptions options_;
  const ProposerDescription description_;
  const std::unique_ptr<SuffixMemory> memory_;
  const std::unique_ptr<SuffixMetrics> metrics_;
  const std::unique_ptr<SuffixLearner> learner_;
};

}  // namespace foretoken::proposer
