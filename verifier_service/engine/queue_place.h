// SPDX-License-Identifier: Apache-2.0
// The bounded queue of requests, and a request's place in it. A request takes its place before it is parsed, and fills
// it with its samples and tokens once they are known. The place is given back when it is destroyed, and while none of
// the samples waits.
//
//   QueueSpace queue({.num_requests = 256, .num_samples = 1024, .num_tokens = 1 << 20});
//   FT_ASSIGN_OR_RETURN(QueuePlace place, queue.Reserve());
//   FT_RETURN_IF_ERROR(place.Fill(num_samples, num_tokens));
//   place.BeginSample();  // for each sample that begins to run
//
// Errors: RESOURCE_EXHAUSTED naming the bound. A request that is larger than a bound fits while no other one waits, so
// that none is refused for ever.
// Threads: a QueueSpace from any; a QueuePlace one at a time. The space outlives its places.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace foretoken::verifier {

struct QueueLoad {
  int64_t num_requests = 0;
  int64_t num_samples = 0;
  int64_t num_tokens = 0;
};

class QueuePlace;

class QueueSpace {
 public:
  explicit QueueSpace(const QueueLoad& most) : most_(most) {}

  absl::StatusOr<QueuePlace> Reserve(int64_t num_bytes = 0);
  QueueLoad load() const {
    return {.num_requests = num_requests_.load(), .num_samples = num_samples_.load(), .num_tokens = num_tokens_.load()};
  }

 private:
  friend class QueuePlace;

  const QueueLoad most_;
  std::atomic<int64_t> num_requests_{0};
  std::atomic<int64_t> num_samples_{0};
  std::atomic<int64_t> num_tokens_{0};
};

class QueuePlace {
 public:
  QueuePlace() = default;  // none
  QueuePlace(QueuePlace&& other) noexcept;
  QueuePlace& operator=(QueuePlace&& other) noexcept;
  ~QueuePlace();

  // At most once. What does not fit is not added.
  absl::Status Fill(int64_t num_samples, int64_t num_tokens);
  // One of the samples waits no longer.
  void BeginSample();
  // A preempted sample waits again. It counts even where more wait then than may.
  void ReturnSample();

 private:
  friend class QueueSpace;

  explicit QueuePlace(QueueSpace* space) : space_(space), is_counted_(true) {}
  void Count();
  void Uncount();

  QueueSpace* space_ = nullptr;
  bool is_counted_ = false;  // the request and its tokens
  int64_t num_samples_ = 0;  // that wait
  int64_t num_tokens_ = 0;   // as guessed from the bytes until it is filled
};

}  // namespace foretoken::verifier
