// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/suffix_learner.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"

namespace foretoken::proposer {

SuffixLearner::SuffixLearner(SuffixMemory& memory, const SuffixLearnerOptions& options, SuffixMetrics* metrics)
    : memory_(memory), options_(options), metrics_(metrics) {
  if (!options_.snapshot_path.empty()) {
    absl::StatusOr<SuffixSnapshot> snapshot = ReadSnapshot(options_.snapshot_path);
    if (snapshot.ok()) {
      spdlog::info("suffix snapshot {}: {} outputs", options_.snapshot_path, snapshot->texts.size());
      unadopted_ = *std::move(snapshot);
      if (metrics_ != nullptr) metrics_->ShowSnapshot(options_.snapshot_path);
    } else if (!absl::IsNotFound(snapshot.status())) {
      spdlog::error("suffix snapshot not used, a new memory begins: {}", snapshot.status().ToString());
    }
  }
  thread_ = std::thread([this] { Run(); });
}

SuffixLearner::~SuffixLearner() {
  {
    absl::MutexLock lock(&mutex_);
    is_ending_ = true;
  }
  thread_.join();
}

void SuffixLearner::AdoptSnapshot() {
  if (!unadopted_.has_value()) return;
  if (vocabulary_.empty()) vocabulary_ = unadopted_->vocabulary;
  std::move(unadopted_->texts.begin(), unadopted_->texts.end(), std::back_inserter(restoring_));
  unadopted_.reset();
}

absl::Status SuffixLearner::AcceptVocabulary(absl::string_view fingerprint) {
  absl::MutexLock lock(&mutex_);
  if (unadopted_.has_value() && !fingerprint.empty() && !unadopted_->vocabulary.empty() &&
      unadopted_->vocabulary != fingerprint) {
    spdlog::error("suffix snapshot not used, a new memory begins: {}: vocabulary: expected {}, got {}",
                  options_.snapshot_path, absl::StrCat(fingerprint), unadopted_->vocabulary);
    unadopted_.reset();
  }
  AdoptSnapshot();
  if (fingerprint.empty()) return absl::OkStatus();
  if (!vocabulary_.empty() && vocabulary_ != fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrCat("vocabulary_fingerprint: expected ", vocabulary_, ", got ", fingerprint));
  }
  vocabulary_.assign(fingerprint.data(), fingerprint.size());
  return absl::OkStatus();
}

void SuffixLearner::Learn(SuffixText output) {
  absl::MutexLock lock(&mutex_);
  const auto num_tokens = static_cast<int64_t>(output.tokens.size());
  if (num_waiting_tokens_ + num_tokens > options_.max_waiting_tokens) {
    if (metrics_ != nullptr) metrics_->CountSkippedOutput();
    return;
  }
  num_waiting_tokens_ += num_tokens;
  waiting_.push_back(std::move(output));
}

void SuffixLearner::WaitUntilLearned() {
  absl::MutexLock lock(&mutex_);
  const auto learned = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return restoring_.empty() && waiting_.empty() && !is_learning_;
  };
  mutex_.Await(absl::Condition(&learned));
}

std::optional<SuffixText> SuffixLearner::TakeNext() {
  std::deque<SuffixText>& queue = restoring_.empty() ? waiting_ : restoring_;
  if (queue.empty()) return std::nullopt;
  SuffixText text = std::move(queue.front());
  queue.pop_front();
  if (&queue == &waiting_) num_waiting_tokens_ -= static_cast<int64_t>(text.tokens.size());
  return text;
}

void SuffixLearner::Run() {
  absl::Time next_save = absl::Now() + options_.snapshot_interval;
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !restoring_.empty() || !waiting_.empty() || is_ending_;
  };
  while (true) {
    std::optional<SuffixText> text;
    {
      absl::MutexLock lock(&mutex_);
      is_learning_ = false;
      mutex_.AwaitWithDeadline(absl::Condition(&has_work), next_save);
      if (is_ending_) break;
      text = TakeNext();
      is_learning_ = text.has_value();
    }
    if (text.has_value()) {
      memory_.Remember(text->tenant, text->tokens);
      if (metrics_ != nullptr) metrics_->ShowMemory(memory_.GetStats());
      has_unsaved_ = true;
    }
    if (absl::Now() >= next_save) {
      Save();
      next_save = absl::Now() + options_.snapshot_interval;
    }
  }
  Save();
}

void SuffixLearner::Save() {
  if (options_.snapshot_path.empty()) return;
  SuffixSnapshot snapshot;
  {
    absl::MutexLock lock(&mutex_);
    if (!has_unsaved_ && waiting_.empty()) return;
    snapshot = {.vocabulary = vocabulary_, .texts = {restoring_.begin(), restoring_.end()}};
    snapshot.texts.insert(snapshot.texts.end(), waiting_.begin(), waiting_.end());
  }
  // This thread alone changes the memory, so what waits goes behind what is in it.
  std::vector<SuffixText> learned = memory_.Texts();
  snapshot.texts.insert(snapshot.texts.begin(), std::make_move_iterator(learned.begin()),
                        std::make_move_iterator(learned.end()));
  const absl::Status status = WriteSnapshot(options_.snapshot_path, snapshot);
  if (status.ok()) {
    has_unsaved_ = false;
    if (metrics_ != nullptr) metrics_->ShowSnapshot(options_.snapshot_path);
  } else {
    spdlog::error("suffix snapshot not written: {}", status.ToString());
  }
}

}  // namespace foretoken::proposer
