// SPDX-License-Identifier: Apache-2.0
// The suffix proposer. It finds the longest end of a sequence that occurred before, in the sequence itself or in a
// finished output, and proposes the tokens that followed it there.
//
// Each session has a suffix tree of its prompt and output. One more tree with counts holds the finished outputs,
// separated by tenant (SuffixMemory). The proposer matches the sequence's end in both trees. It grows a token tree best
// path chance first, down to depth_per_match times the length of the match (GrowSuffixTree). suffix_tree.h says why it
// uses suffix trees, and their cost.
//
// If only some tokens may come next, the match in each tree is the longest one that such a token follows.
//
// Learning. When a session ends, for any reason, the proposer learns the tokens that came after its opening context,
// and the last few tokens before them, so that the beginning of an output can be matched. A sequence may open a second
// session after a preemption. Its earlier output is then part of the opening context, so the proposer learns no token
// twice. After a broken stream it is opened with its prompt alone, perhaps at another proposer, which learns all of its
// output; a proposer that it comes back to learns the first part again. A background thread learns, so ending a session
// costs nothing.
//
// Vocabularies. Token ids have a meaning in one vocabulary only, so outputs are separated by vocabulary as they are by
// tenant. Verifiers with different vocabularies may share a proposer. Verifiers that do not tell their vocabulary share
// one set of outputs.
//
// Restarts. With a snapshot_path the proposer writes the outputs to that file from time to time and at the end, and
// reads them at the start (suffix_snapshot.h). Only one proposer may use a file.
//
// Memory: some 20 to 50 bytes for each of the shared_tokens, and as much for each token of an open session's context.
// Source: SuffixDecoding (2411.04975).
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
  float min_path_chance = 0.01f;    // the proposer makes no guesses of lower path chance; in [0, 1)
  int64_t shared_tokens = 1 << 24;  // tokens of finished outputs to remember, over all tenants; 1,024 to 2^27
  std::string snapshot_path = {};   // the file where outputs survive a restart; empty: none
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
  // The same without a snapshot file, whatever the options say. The options must be valid. Null metrics: no metrics.
  explicit SuffixProposer(const SuffixOptions& options, telemetry::Metrics* metrics = nullptr);
  // The same with this snapshot file.
  SuffixProposer(const SuffixOptions& options, telemetry::Metrics* metrics, std::unique_ptr<SuffixSnapshotFile> file);
  // Writes the last snapshot. No session may be left.
  ~SuffixProposer() override;

  const ProposerDescription& Describe() const override { return description_; }
  std::unique_ptr<Session> Open(const SessionIntroduction& introduction) override;
  std::vector<speculation::TokenTree> Propose(std::span<const ProposalRequest> requests) override;

  // Returns when the proposer has learned the outputs of all ended sessions.
  void WaitUntilLearned();
  // Bytes of the memory of finished outputs.
  size_t num_bytes() const;

 private:
  const SuffixOptions options_;
  const ProposerDescription description_;
  const std::unique_ptr<SuffixMemory> memory_;
  const std::unique_ptr<SuffixMetrics> metrics_;
  const std::unique_ptr<SuffixLearner> learner_;
};

}  // namespace foretoken::proposer
