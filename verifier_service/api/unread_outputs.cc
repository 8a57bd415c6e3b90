// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/unread_outputs.h"

#include <algorithm>
#include <utility>

namespace foretoken::verifier {

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

}  // namespace foretoken::verifier
