// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/suffix/suffix_learner.h"

#include <iterator>
#include <utility>
#include <vector>

#include "common/base/steady_clock.h"
#include "spdlog/spdlog.h"

namespace foretoken::proposer {

namespace {

// The cost of a waiting output, in tokens. The 128 stand for its owner's names and the queue's own memory.
int64_t CostOf(const SuffixText& output) { return 128 + static_cast<int64_t>(output.tokens.size()); }

}  // namespace

SuffixLearner::SuffixLearner(SuffixMemory& memory, const SuffixLearnerOptions& options,
                             std::unique_ptr<SuffixSnapshotFile> file, SuffixMetrics* metrics)
    : memory_(memory), options_(options), file_(std::move(file)), metrics_(metrics) {
  if (file_ != nullptr) {
    std::vector<SuffixText> texts = file_->TakeTexts();
    restoring_.assign(std::make_move_iterator(texts.begin()), std::make_move_iterator(texts.end()));
    if (metrics_ != nullptr) metrics_->ShowSnapshot(file_->path());
  }
  thread_ = std::thread([this] { Run(); });
}

SuffixLearner::~SuffixLearner() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    wake_.notify_one();
  }
  thread_.join();
}

void SuffixLearner::Learn(SuffixText output) {
  const std::lock_guard lock(mutex_);
  if (num_waiting_tokens_ + CostOf(output) > options_.max_waiting_tokens) {
    if (metrics_ != nullptr) metrics_->CountSkippedOutput();
    return;
  }
  num_waiting_tokens_ += CostOf(output);
  has_unsaved_ = true;
  waiting_.push_back(std::move(output));
  wake_.notify_one();
}

void SuffixLearner::WaitUntilLearned() {
  std::unique_lock lock(mutex_);
  learned_.wait(lock, [this] { return restoring_.empty() && waiting_.empty() && !is_learning_; });
}

std::optional<SuffixText> SuffixLearner::TakeNext() {
  std::deque<SuffixText>& queue = restoring_.empty() ? waiting_ : restoring_;
  if (queue.empty()) return std::nullopt;
  SuffixText text = std::move(queue.front());
  queue.pop_front();
  if (&queue == &waiting_) num_waiting_tokens_ -= CostOf(text);
  return text;
}

void SuffixLearner::Run() {
  absl::Time next_save = SteadyNow() + options_.snapshot_interval;
  while (true) {
    std::optional<SuffixText> text;
    {
      std::unique_lock lock(mutex_);
      is_learning_ = false;
      if (restoring_.empty() && waiting_.empty() && !is_ending_) {
        learned_.notify_all();
        WaitAtMost(next_save - SteadyNow(), wake_, lock);
      }
      if (is_ending_) break;
      text = TakeNext();
      is_learning_ = text.has_value();
    }
    if (text.has_value()) {
      memory_.Remember(text->owner, text->tokens);
      if (metrics_ != nullptr) metrics_->ShowMemory(memory_.GetStats());
    }
    if (SteadyNow() >= next_save) {
      Save();
      next_save = SteadyNow() + options_.snapshot_interval;
    }
  }
  Save();
}

void SuffixLearner::Save() {
  if (file_ == nullptr) return;
  std::vector<SuffixText> later;
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(has_unsaved_, false)) return;
    later.assign(restoring_.begin(), restoring_.end());
    later.insert(later.end(), waiting_.begin(), waiting_.end());
  }
  // Only this thread changes the memory, so the waiting outputs follow the outputs of the memory in order.
  std::vector<SuffixText> texts = memory_.Texts();
  texts.insert(texts.end(), std::make_move_iterator(later.begin()), std::make_move_iterator(later.end()));
  if (const absl::Status status = file_->Write(texts); !status.ok()) {
    spdlog::error("suffix snapshot not written: {}", status.ToString());
    const std::lock_guard lock(mutex_);
    has_unsaved_ = true;
  } else if (metrics_ != nullptr) {
    metrics_->ShowSnapshot(file_->path());
  }
}

}  // namespace foretoken::proposer
