// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/unread_outputs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"
#include "common/rpc/call_reference.h"

namespace foretoken::verifier {

absl::Status UnreadError(absl::string_view why) {
  return base::WithReason(absl::ResourceExhaustedError(absl::StrCat("OUTPUT_NOT_READ: the output is not read: ", why)),
                          "OUTPUT_NOT_READ");
}

std::string NotTakenWithin(absl::Duration max_write_time) {
  return absl::StrCat("a message was not taken within ", absl::FormatDuration(max_write_time));
}

std::optional<Ticket> UnreadOutputs::Set(Ticket ticket, int64_t num_bytes) {
  absl::MutexLock lock(&mutex_);
  if (num_bytes == 0) {
    if (const auto call = num_bytes_.find(ticket); call != num_bytes_.end()) {
      total_bytes_ -= call->second;
      num_bytes_.erase(call);
    }
    return std::nullopt;
  }
  int64_t& counted = num_bytes_[ticket];
  total_bytes_ += num_bytes;
  total_bytes_ -= std::exchange(counted, num_bytes);
  if (total_bytes_ <= max_bytes_) return std::nullopt;
  return std::max_element(num_bytes_.begin(), num_bytes_.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

UnreadOutputs::Totals UnreadOutputs::totals() const {
  absl::MutexLock lock(&mutex_);
  return {.num_calls = static_cast<int64_t>(num_bytes_.size()), .num_bytes = total_bytes_};
}

std::optional<Ticket> UnreadAnswers::Begin(Ticket ticket, grpc::CallbackServerContext& context, size_t num_bytes) {
  absl::MutexLock lock(&mutex_);
  answers_[ticket] = {.context = &context, .began = Clock::now()};
  return unread_->Set(ticket, static_cast<int64_t>(num_bytes));
}

void UnreadAnswers::End(Ticket ticket) {
  absl::MutexLock lock(&mutex_);
  answers_.erase(ticket);
  unread_->Set(ticket, 0);
}

void UnreadAnswers::Cancel(Ticket ticket, absl::string_view why) {
  std::optional<rpc::CallReference> call;
  {
    absl::MutexLock lock(&mutex_);
    const auto answer = answers_.find(ticket);
    if (answer == answers_.end()) return;
    call.emplace(*answer->second.context);
  }
  call->Cancel(UnreadError(why));
}

void UnreadAnswers::CancelOlderThan(absl::Duration max_time) {
  std::vector<rpc::CallReference> calls;
  {
    absl::MutexLock lock(&mutex_);
    const Clock::time_point now = Clock::now();
    for (const auto& [ticket, answer] : answers_) {
      if (now - answer.began >= absl::ToChronoNanoseconds(max_time)) calls.emplace_back(*answer.context);
    }
  }
  for (const rpc::CallReference& call : calls) call.Cancel(UnreadError(NotTakenWithin(max_time)));
}

}  // namespace foretoken::verifier
