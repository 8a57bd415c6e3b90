// SPDX-License-Identifier: Apache-2.0
// The engine: takes requests in, runs steps, gives outputs out. One thread owns every sequence and all K/V and takes no
// lock inside a step; other threads reach it through the inbox.
//
//   Engine engine(config, {.transformer = ..., .tokenizer = ..., .proposers = ..., .publish = ...});
//   engine.Submit(std::move(request));
//
// Errors: Submit fails with RESOURCE_EXHAUSTED when the queue is full, UNAVAILABLE when draining, ALREADY_EXISTS for a
// request_id in use. What goes wrong with one request later comes as that request's last output.
// Threads: Reserve, Submit, Abort, Drain, GetStats from any; `publish` is called on the engine's thread, once a step, with the
// outputs of all samples, and must not block.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "verifier_service/request.h"

namespace foretoken::verifier {

using Publish = std::function<void(std::vector<SampleOutput>)>;

// A place in the bounded queue, taken before a request is even tokenised and given back when it is destroyed unused.
class QueuePlace {
 public:
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
