// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/suffix/suffix.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "proposer_service/suffix/suffix_learner.h"
#include "proposer_service/suffix/suffix_memory.h"
#include "proposer_service/suffix/suffix_metrics.h"
#include "proposer_service/suffix/suffix_session.h"

namespace foretoken::proposer {
namespace {

constexpr int64_t kMinSharedTokens = 1024;
constexpr int64_t kMaxSharedTokens = SuffixTree::kMaxTokens;

absl::Status OutOfRange(absl::string_view field, absl::string_view expected, double got) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": expected ", expected, ", got ", got));
}

}  // namespace

absl::Status Validate(const SuffixOptions& options) {
  if (options.max_depth < 2 || options.max_depth > SuffixTree::kMaxDepth) {
    return OutOfRange("suffix_max_depth", absl::StrCat("2 to ", SuffixTree::kMaxDepth), options.max_depth);
  }
  if (!(options.depth_per_match > 0 && options.depth_per_match <= 1024)) {
    return OutOfRange("suffix_depth_per_match", "above 0, at most 1024", options.depth_per_match);
  }
  if (!(options.min_path_chance >= 0 && options.min_path_chance < 1)) {
    return OutOfRange("suffix_min_path_chance", "at least 0, below 1", options.min_path_chance);
  }
  if (options.shared_tokens < kMinSharedTokens || options.shared_tokens > kMaxSharedTokens) {
    return OutOfRange("suffix_shared_tokens", absl::StrCat(kMinSharedTokens, " to ", kMaxSharedTokens),
                      static_cast<double>(options.shared_tokens));
  }
  if (options.snapshot_interval < absl::Milliseconds(1)) {
    return absl::InvalidArgumentError(absl::StrCat("suffix_snapshot_interval: expected at least 1ms, got ",
                                                   absl::FormatDuration(options.snapshot_interval)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SuffixProposer>> SuffixProposer::Create(const SuffixOptions& options,
                                                                       telemetry::Metrics* metrics) {
  std::unique_ptr<SuffixSnapshotFile> file;
  if (!options.snapshot_path.empty()) {
    FT_ASSIGN_OR_RETURN(file, SuffixSnapshotFile::Open(options.snapshot_path));
  }
  return std::make_unique<SuffixProposer>(options, metrics, std::move(file));
}

SuffixProposer::SuffixProposer(const SuffixOptions& options, telemetry::Metrics* metrics)
    : SuffixProposer(options, metrics, nullptr) {}

SuffixProposer::SuffixProposer(const SuffixOptions& options, telemetry::Metrics* metrics,
                               std::unique_ptr<SuffixSnapshotFile> file)
    : options_(options),
      description_{.method = "suffix", .max_context_tokens = SuffixTree::kMaxTokens - 1},  // and the end of the text
      memory_(std::make_unique<SuffixMemory>(SuffixTreeOptions{
          .max_depth = options.max_depth, .max_tokens = static_cast<uint32_t>(options.shared_tokens)})),
      metrics_(metrics == nullptr ? nullptr : std::make_unique<SuffixMetrics>(*metrics)),
      learner_(std::make_unique<SuffixLearner>(*memory_,
                                               SuffixLearnerOptions{.snapshot_interval = options.snapshot_interval,
                                                                    .max_waiting_tokens = options.shared_tokens / 2},
                                               std::move(file), metrics_.get())) {}

SuffixProposer::~SuffixProposer() = default;

std::unique_ptr<Session> SuffixProposer::Open(const SessionIntroduction& introduction) {
  return std::make_unique<SuffixSession>(
      options_, *memory_, SuffixOwner{.vocabulary = introduction.vocabulary, .tenant = introduction.tenant},
      [this](SuffixText output) { learner_->Learn(std::move(output)); });
}

std::vector<speculation::TokenTree> SuffixProposer::Propose(std::span<const ProposalRequest> requests) {
  std::vector<speculation::TokenTree> trees;
  trees.reserve(requests.size());
  for (const ProposalRequest& request : requests) {
    trees.push_back(static_cast<SuffixSession&>(*request.session).Propose(request.node_budget));
  }
  return trees;
}

void SuffixProposer::WaitUntilLearned() { learner_->WaitUntilLearned(); }

size_t SuffixProposer::num_bytes() const { return memory_->num_bytes(); }

}  // namespace foretoken::proposer
