// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/suffix_learner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"

namespace foretoken::proposer {

SuffixLearner::SuffixLearner(SuffixMemory& memory, const SuffixLearnerOptions& options)
    : memory_(memory), options_(options) {
  if (!options_.snapshot_path.empty()) {
    absl::StatusOr<SuffixSnapshot> snapshot = ReadSnapshot(options_.snapshot_path);
    if (snapshot.ok()) {
      spdlog::info("suffix snapshot {}: {} outputs", options_.snapshot_path, snapshot->texts.size());
      unadopted_ = *std::move(snapshot);
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
  for (SuffixText& text : unadopted_->texts) waiting_.push_back(std::move(text));
  unadopted_.reset();
}

absl::Status SuffixLearner::AcceptVocabulary(absl::string_view fingerprint) {
  absl::MutexLock lock(&mutex_);
  if (unadopted_.has_value() && !fingerprint.empty() && !unadopted_->vocabulary.empty() &&
      unadopted_->vocabulary != fingerprint) {
    spdlog::error("suffix snapshot not used, a new memory begins: {}: vocabulary: expected {}, got {}",
                  options_.snapshot_path, std::string(fingerprint), unadopted_->vocabulary);
    unadopted_.reset();
  }
  AdoptSnapshot();
  if (fingerprint.empty()) return absl::OkStatus();
  if (!vocabulary_.empty() && vocabulary_ != fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrCat("vocabulary_fingerprint: expected ", vocabulary_, ", got ", std::string(fingerprint)));
  }
  vocabulary_ = std::string(fingerprint);
  return absl::OkStatus();
}

void SuffixLearner::Learn(SuffixText output) {
  absl::MutexLock lock(&mutex_);
  const auto num_tokens = static_cast<int64_t>(output.tokens.size());
  if (num_waiting_tokens_ + num_tokens > options_.max_waiting_tokens) return;
  num_waiting_tokens_ += num_tokens;
  waiting_.push_back(std::move(output));
}

void SuffixLearner::WaitUntilLearned() {
  absl::MutexLock lock(&mutex_);
  const auto learned = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return waiting_.empty() && !is_learning_; };
  mutex_.Await(absl::Condition(&learned));
}

void SuffixLearner::Run() {
  absl::Time next_save = absl::Now() + options_.snapshot_interval;
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !waiting_.empty() || is_ending_; };
  while (true) {
    std::optional<SuffixText> text;
    {
      absl::MutexLock lock(&mutex_);
      is_learning_ = false;
      mutex_.AwaitWithDeadline(absl::Condition(&has_work), next_save);
      if (is_ending_) break;
      if (!waiting_.empty()) {
        text = std::move(waiting_.front());
        waiting_.pop_front();
        is_learning_ = true;
      }
    }
    if (text.has_value()) {
      memory_.Remember(text->tenant, text->tokens);
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
    snapshot = {.vocabulary = vocabulary_, .texts = {waiting_.begin(), waiting_.end()}};
  }
  // This thread alone changes the memory, so what waited goes behind what is in it.
  std::vector<SuffixText> learned = memory_.Texts();
  snapshot.texts.insert(snapshot.texts.begin(), std::make_move_iterator(learned.begin()),
                        std::make_move_iterator(learned.end()));
  const absl::Status status = WriteSnapshot(options_.snapshot_path, snapshot);
  if (status.ok()) {
    has_unsaved_ = false;
  } else {
    spdlog::error("suffix snapshot not written: {}", status.ToString());
  }
}

}  // namespace foretoken::proposer
