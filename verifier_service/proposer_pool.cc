// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/proposer_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "verifier_service/proposer_pool_keeper.h"

namespace foretoken::verifier {
namespace {

constexpr size_t kMaxProposers = 31;  // a node's proposers are the bits of a uint32_t, a request's prediction one more

absl::Status CheckSpecs(const std::vector<ProposerSpec>& specs) {
  if (specs.size() > kMaxProposers) {
    return absl::InvalidArgumentError(
        absl::StrCat("proposers: expected at most ", kMaxProposers, ", got ", specs.size()));
  }
  for (auto spec = specs.begin(); spec != specs.end(); ++spec) {
    const auto is_same = [&](const ProposerSpec& other) { return other.method == spec->method; };
    if (spec->method == kPredictionName) {
      return absl::InvalidArgumentError(absl::StrCat(
          "proposer ", kPredictionName, ": expected another name, this is that of a request's prediction"));
    }
    if (std::any_of(specs.begin(), spec, is_same)) {
      return absl::InvalidArgumentError(
          absl::StrCat("proposer ", spec->method, ": given twice; one spec may list many targets"));
    }
    if (spec->is_embedded && spec->channel == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("proposer ", spec->method, ": embedded, but it has no channel"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProposerPool>> ProposerPool::Create(std::vector<ProposerSpec> specs,
                                                                   ProposerPoolOptions options) {
  if (absl::Status status = CheckSpecs(specs); !status.ok()) return status;
  if (options.num_tokens <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("proposer pool num_tokens: expected the vocabulary's size, got ", options.num_tokens));
  }
  return std::unique_ptr<ProposerPool>(
      new ProposerPool(std::make_unique<Keeper>(std::move(specs), std::move(options))));
}

ProposerPool::ProposerPool(std::unique_ptr<Keeper> keeper) : keeper_(std::move(keeper)) {}
ProposerPool::~ProposerPool() = default;

const std::vector<std::string>& ProposerPool::Names() const { return keeper_->names; }

void ProposerPool::Open(const SequenceIntroduction& introduction) {
  absl::MutexLock lock(&keeper_->mutex);
  keeper_->book.Open(introduction, absl::Now());
}

void ProposerPool::Advance(SequenceId sequence_id, std::span<const int32_t> committed, const Ask& ask) {
  absl::MutexLock lock(&keeper_->mutex);
  keeper_->book.Advance(sequence_id, committed, ask);
}

void ProposerPool::Close(SequenceId sequence_id) {
  absl::MutexLock lock(&keeper_->mutex);
  keeper_->book.Close(sequence_id);
}

void ProposerPool::Flush(const ComingStep& forecast) {
  absl::MutexLock lock(&keeper_->mutex);
  const absl::Time now = absl::Now();
  for (auto& [id, link] : keeper_->links) {
    if (link->stream == nullptr) continue;
    keeper_->book.MarkFlushed(link->replica_id, forecast, now);
    keeper_->Write(*link, now);
  }
}

std::vector<Proposal> ProposerPool::TakeProposals(absl::Duration max_wait) {
  absl::MutexLock lock(&keeper_->mutex);
  if (max_wait > absl::ZeroDuration()) {
    absl::Time now = absl::Now();
    const absl::Time latest = now + max_wait;
    for (;; now = absl::Now()) {
      const std::optional<absl::Time> until = keeper_->book.WaitUntil(now, latest);
      if (!until.has_value()) break;
      keeper_->answered.WaitWithDeadline(&keeper_->mutex, *until);
    }
    keeper_->book.EndWait();
  }
  return keeper_->book.TakeProposals();
}

std::vector<ProposerStatus> ProposerPool::GetStatus() const {
  absl::MutexLock lock(&keeper_->mutex);
  std::vector<ProposerStatus> statuses;
  for (const std::string& name : keeper_->names) statuses.push_back({.name = name});
  for (const auto& [id, link] : keeper_->links) {
    if (link->stream != nullptr) ++statuses[link->proposer_idx].num_connected;
  }
  return statuses;
}

std::vector<ProposerCounters> ProposerPool::GetCounters() const {
  absl::MutexLock lock(&keeper_->mutex);
  std::vector<ProposerCounters> counters = keeper_->counters;
  for (size_t i = 0; i < counters.size(); ++i) {
    counters[i].num_moved_sessions = keeper_->book.num_moved(static_cast<uint32_t>(i));
  }
  return counters;
}

}  // namespace foretoken::verifier
