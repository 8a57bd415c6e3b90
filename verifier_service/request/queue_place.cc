// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/request/queue_place.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/error_text.h"
#include "common/base/status_macros.h"
#include "kernels/check.h"

namespace foretoken::verifier {
namespace {

// The average of text in natural and programming languages, and the size of an id in a message.
constexpr int64_t kBytesPerToken = 4;

struct Addition {
  absl::string_view bound;
  int64_t number = 0;
  int64_t most = 0;
};

absl::Status Add(const Addition& addition, std::atomic<int64_t>& total) {
  const int64_t before = total.fetch_add(addition.number);
  const bool fits = before + addition.number <= addition.most;
  if (fits || before == 0 || addition.number == 0) return absl::OkStatus();
  total.fetch_sub(addition.number);
  return base::Passing(base::WithReason(
      absl::ResourceExhaustedError(absl::StrCat("the queue is full: ", addition.bound, " is ", addition.most, ", ",
                                                before, " wait, and the request has ", addition.number)),
      "QUEUE_FULL"));
}

}  // namespace

absl::StatusOr<QueuePlace> QueueSpace::Reserve(int64_t num_bytes) {
  FT_RETURN_IF_ERROR(Add({.bound = "max_queued_requests", .number = 1, .most = most_.num_requests}, num_requests_));
  QueuePlace place(this);
  const int64_t num_tokens = num_bytes / kBytesPerToken;
  FT_RETURN_IF_ERROR(Add({.bound = "max_queued_tokens", .number = num_tokens, .most = most_.num_tokens}, num_tokens_));
  place.num_tokens_ = num_tokens;
  return place;
}

int64_t QueueSpace::NumAhead(int32_t priority) const {
  return std::accumulate(num_by_priority_.begin() + kMaxPriority + priority, num_by_priority_.end(), int64_t{0});
}

QueuePlace::QueuePlace(QueuePlace&& other) noexcept { *this = std::move(other); }

QueuePlace& QueuePlace::operator=(QueuePlace&& other) noexcept {
  std::swap(space_, other.space_);
  std::swap(is_counted_, other.is_counted_);
  std::swap(num_samples_, other.num_samples_);
  std::swap(num_tokens_, other.num_tokens_);
  std::swap(priority_, other.priority_);
  return *this;
}

QueuePlace::~QueuePlace() {
  if (space_ == nullptr) return;
  space_->num_samples_.fetch_sub(num_samples_);
  Uncount();
}

void QueuePlace::Count() {
  if (std::exchange(is_counted_, true)) return;
  space_->num_requests_.fetch_add(1);
  space_->num_tokens_.fetch_add(num_tokens_);
  CountPriority(1);
}

void QueuePlace::Uncount() {
  if (!std::exchange(is_counted_, false)) return;
  space_->num_requests_.fetch_sub(1);
  space_->num_tokens_.fetch_sub(num_tokens_);
  CountPriority(-1);
}

void QueuePlace::CountPriority(int32_t change) {
  if (priority_.has_value()) space_->num_by_priority_[kMaxPriority + *priority_].fetch_add(change);
}

absl::Status QueuePlace::Fill(int64_t num_samples, int64_t num_tokens, int32_t priority) {
  FT_CHECK(space_ != nullptr && is_counted_ && num_samples_ == 0);
  space_->num_tokens_.fetch_sub(std::exchange(num_tokens_, 0));
  FT_RETURN_IF_ERROR(Add({.bound = "max_queued_samples", .number = num_samples, .most = space_->most_.num_samples},
                         space_->num_samples_));
  num_samples_ = num_samples;
  FT_RETURN_IF_ERROR(
      Add({.bound = "max_queued_tokens", .number = num_tokens, .most = space_->most_.num_tokens}, space_->num_tokens_));
  num_tokens_ = num_tokens;
  priority_ = priority;
  CountPriority(1);
  return absl::OkStatus();
}

void QueuePlace::BeginSample() {
  FT_CHECK(num_samples_ > 0);
  space_->num_samples_.fetch_sub(1);
  if (--num_samples_ == 0) Uncount();
}

void QueuePlace::ReturnSample() {
  Count();
  ++num_samples_;
  space_->num_samples_.fetch_add(1);
}

}  // namespace foretoken::verifier
