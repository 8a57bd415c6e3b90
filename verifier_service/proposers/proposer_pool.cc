// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/proposers/proposer_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "verifier_service/proposers/proposer_pool_keeper.h"

namespace foretoken::verifier {

constexpr size_t kMaxProposers = 32 - kNumOwnProposers;  // one bit each in a node's uint32_t

absl::Status CheckSpecs(const std::vector<ProposerSpec>& specs) {
  if (specs.size() > kMaxProposers) {
    return absl::InvalidArgumentError(
        absl::StrCat("proposers: expected at most ", kMaxProposers, ", got ", specs.size()));
  }
  for (auto spec = specs.begin(); spec != specs.end(); ++spec) {
    const auto is_same = [&](const ProposerSpec& other) { return other.method == spec->method; };
    if (spec->method == kPredictionName || spec->method == kGrammarName) {
      return absl::InvalidArgumentError(absl::StrCat(
          "proposer ", spec->method, ": expected another name, because a proposer of the verifier's own has this one"));
    }
    if (std::any_of(specs.begin(), spec, is_same)) {
      return absl::InvalidArgumentError(
          absl::StrCat("proposer ", spec->method, ": given twice; one spec may list many targets"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ProposerPool>> ProposerPool::Create(std::vector<ProposerSpec> specs,
                                                                   ProposerPoolOptions options) {
  if (absl::Status status = CheckSpecs(specs); !status.ok()) return status;
  for (const ProposerSpec& spec : specs) {
    if (spec.is_embedded && spec.channel == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("proposer ", spec.method, ": embedded, but it has no channel"));
    }
  }
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
  const std::lock_guard lock(keeper_->mutex);
  keeper_->book.Open(introduction, keeper_->options.now());
}

void ProposerPool::Advance(SequenceId sequence_id, std::span<const int32_t> committed, const Ask& ask) {
  const std::lock_guard lock(keeper_->mutex);
  keeper_->book.Advance(sequence_id, committed, ask);
}

void ProposerPool::Close(SequenceId sequence_id) {
  const std::lock_guard lock(keeper_->mutex);
  keeper_->book.Close(sequence_id);
}

void ProposerPool::Flush(const ComingStep& forecast) {
  const std::lock_guard lock(keeper_->mutex);
  const absl::Time now = keeper_->options.now();
  for (auto& [id, link] : keeper_->links) {
    if (link->stream == nullptr) continue;
    keeper_->book.MarkFlushed(link->replica_id, forecast, now);
    keeper_->Write(*link, now);
  }
}

std::vector<Proposal> ProposerPool::TakeProposals(absl::Duration max_wait) {
  std::unique_lock lock(keeper_->mutex);
  if (max_wait > absl::ZeroDuration()) {
    absl::Time now = keeper_->options.now();
    const absl::Time latest = now + max_wait;
    for (;; now = keeper_->options.now()) {
      const std::optional<absl::Time> until = keeper_->book.WaitUntil(now, latest);
      if (!until.has_value()) break;
      WaitAtMost(*until - now, keeper_->answered, lock);
    }
    keeper_->book.EndWait();
  }
  return keeper_->book.TakeProposals();
}

std::vector<FeatureSource> ProposerPool::FeatureSources() {
  const std::lock_guard lock(keeper_->mutex);
  return keeper_->FeatureSources(keeper_->options.now());
}

uint32_t ProposerPool::ReadersOf(const FeatureSource& source) const {
  const std::lock_guard lock(keeper_->mutex);
  return keeper_->ReadersOf(source);
}

void ProposerPool::RefuseFeatures(const FeatureSource& source, const std::string& why) {
  const std::lock_guard lock(keeper_->mutex);
  keeper_->RefuseFeatures(source, why, keeper_->options.now());
}

std::vector<FeatureDemand> ProposerPool::FeatureDemands() {
  const std::lock_guard lock(keeper_->mutex);
  return keeper_->book.FeatureDemands();
}

void ProposerPool::GiveFeatures(const FeatureDemand& demand, int32_t begin, std::vector<uint16_t> values) {
  const std::lock_guard lock(keeper_->mutex);
  keeper_->book.GiveFeatures(demand, begin, std::move(values));
}

MissingSessions ProposerPool::FindMissing(SequenceId sequence_id) const {
  const std::lock_guard lock(keeper_->mutex);
  return keeper_->book.FindMissing(sequence_id);
}

std::vector<ProposerStatus> ProposerPool::GetStatus() const {
  const std::lock_guard lock(keeper_->mutex);
  std::vector<ProposerStatus> statuses;
  for (uint32_t i = 0; i < keeper_->names.size(); ++i) {
    statuses.push_back({.name = keeper_->names[i], .num_waiting = keeper_->book.num_waiting(i)});
  }
  for (const auto& [id, link] : keeper_->links) {
    if (link->stream != nullptr) ++statuses[link->proposer_idx].num_connected;
  }
  return statuses;
}

std::vector<ProposerCounters> ProposerPool::GetCounters() const {
  const std::lock_guard lock(keeper_->mutex);
  std::vector<ProposerCounters> counters = keeper_->counters;
  for (size_t i = 0; i < counters.size(); ++i) {
    const SessionBook::Totals& totals = keeper_->book.totals(static_cast<uint32_t>(i));
    counters[i].num_questions = totals.num_questions;
    counters[i].num_late_answers = totals.num_late;
    counters[i].num_moved_sessions = totals.num_moved;
  }
  return counters;
}

}  // namespace foretoken::verifier
