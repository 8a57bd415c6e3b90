// SPDX-License-Identifier: Apache-2.0
// A place in the bounded queue of requests, taken before a request is even tokenised. It is given back when it is
// destroyed: because the request runs, or because it never came to that.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace foretoken::verifier {

class QueuePlace {
 public:
  // Takes over one count that the caller has added.
  explicit QueuePlace(std::atomic<int32_t>* num_queued) : num_queued_(num_queued) {}
  QueuePlace(QueuePlace&& other) noexcept : num_queued_(std::exchange(other.num_queued_, nullptr)) {}
  QueuePlace& operator=(QueuePlace&& other) noexcept {
    std::swap(num_queued_, other.num_queued_);
    return *this;
  }
  ~QueuePlace() {
    if (num_queued_ != nullptr) num_queued_->fetch_sub(1);
  }

 private:
  std::atomic<int32_t>* num_queued_;
};

}  // namespace foretoken::verifier
