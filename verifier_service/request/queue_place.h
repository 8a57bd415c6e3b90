// SPDX-License-Identifier: Apache-2.0
// The bounded queue of requests, and a request's place in it. A request takes its place before it is parsed, and adds
// its samples and tokens when they are known. Destroying the place frees it. The place also does not count while none
// of the request's samples waits.
//
//   QueueSpace queue({.num_requests = 256, .num_samples = 1024, .num_tokens = 1 << 20});
//   FT_ASSIGN_OR_RETURN(QueuePlace place, queue.Reserve());
//   FT_RETURN_IF_ERROR(place.Fill(num_samples, num_tokens));
//   place.BeginSample();  // for each sample that begins to run
//
// Errors: RESOURCE_EXHAUSTED with the bound. A request that is larger than a bound fits while no other request waits,
// so that no request is refused forever.
// Threads: a QueueSpace from any; a QueuePlace one at a time. The space outlives its places.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "verifier_service/request/request.h"

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
  // The waiting requests with this priority or a higher one. Requests whose priority is not known yet do not count.
  int64_t NumAhead(int32_t priority) const;

 private:
  friend class QueuePlace;

  const QueueLoad most_;
  std::atomic<int64_t> num_requests_{0};
  std::atomic<int64_t> num_samples_{0};
  std::atomic<int64_t> num_tokens_{0};
  std::array<std::atomic<int32_t>, 2 * kMaxPriority + 1> num_by_priority_{};  // from -kMaxPriority on
};

class QueuePlace {
 public:
  QueuePlace() = default;  // none
  QueuePlace(QueuePlace&& other) noexcept;
  QueuePlace& operator=(QueuePlace&& other) noexcept;
  ~QueuePlace();

  // Adds the request's samples and tokens. A part that does not fit is not added. Called at most once.
  absl::Status Fill(int64_t num_samples, int64_t num_tokens, int32_t priority = 0);
  // One of the samples begins to run.
  void BeginSample();
  // A preempted sample waits again. It counts even if the queue then exceeds its bounds.
  void ReturnSample();

 private:
  friend class QueueSpace;

  explicit QueuePlace(QueueSpace* space) : space_(space), is_counted_(true) {}
  void Count();
  void Uncount();
  void CountPriority(int32_t change);

  QueueSpace* space_ = nullptr;
  bool is_counted_ = false;          // the request and its tokens count
  int64_t num_samples_ = 0;          // that wait
  int64_t num_tokens_ = 0;           // estimated from the bytes until Fill
  std::optional<int32_t> priority_;  // unset until Fill
};

}  // namespace foretoken::verifier
