// SPDX-License-Identifier: Apache-2.0
// The bounded queue of requests, and a request's place in it. A request takes its place before it is parsed, with
// estimates of its samples and tokens, and says both when they are known. Destroying the place frees it. The place also
// does not count while none of the request's samples waits.
//
//   QueueSpace queue({.num_requests = 256, .num_samples = 1024, .num_tokens = 1 << 20});
//   FT_ASSIGN_OR_RETURN(QueuePlace place, queue.Reserve(num_bytes, tenant, num_samples));
//   FT_RETURN_IF_ERROR(place.Fill({.tenant = tenant, .num_samples = 1, .num_tokens = 12}));
//   place.BeginSample();  // for each sample that begins to run
//
// Tenants. One tenant may take the whole queue while no other wants a place. A tenant's share of each bound follows its
// weight among the tenants that wait. In a full queue a tenant below its share still gets a place, up to twice the
// bound, and the engine then ends requests of the tenant that is furthest above its share (FurthestAboveShare) until
// the queue is within its bounds again. The queue forgets a tenant without places.
//
// Errors: RESOURCE_EXHAUSTED with the bound, QUEUE_FULL or TENANT_QUEUE_FULL. A request that is larger than a bound
// fits while no other request waits, so that a tenant alone is not refused forever. Its tokens then count as many as
// the bound, so that other tenants still get their places, and it may lose its own to them. Cost: O(1) in the number of
// requests; FurthestAboveShare looks at every tenant. Threads: a QueueSpace from any; a QueuePlace one at a time. The
// space outlives its places.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "verifier_service/request/request.h"
#include "verifier_service/request/tenant_shares.h"

namespace foretoken::verifier {

struct QueueLoad {
  int64_t num_requests = 0;
  int64_t num_samples = 0;
  int64_t num_tokens = 0;
};

// What a request is known to bring when it has been parsed.
struct QueuedRequest {
  absl::string_view tenant;
  int64_t num_samples = 1;
  int64_t num_tokens = 0;
  int32_t priority = 0;
};

class QueuePlace;

class QueueSpace {
 public:
  explicit QueueSpace(const QueueLoad& most, TenantShares tenants = {});

  absl::StatusOr<QueuePlace> Reserve(int64_t num_bytes = 0, absl::string_view tenant = {}, int64_t num_samples = 0);
  QueueLoad load() const;
  // The tenants with waiting requests.
  int64_t num_tenants() const;
  // The tenant's waiting requests with this priority or a higher one. Requests whose priority is not known yet do not
  // count.
  int64_t NumAhead(int32_t priority, absl::string_view tenant = {}) const;
  using CanGive = std::function<bool(absl::string_view tenant)>;
  // Returns the tenant that must give places back, because the queue is beyond a bound and several tenants wait. It is
  // the tenant furthest above its share for which can_give returns true. can_give must not call the QueueSpace.
  std::optional<std::string> FurthestAboveShare(const CanGive& can_give) const;

 private:
  friend class QueuePlace;

  struct Bound {
    absl::string_view name;
    int64_t QueueLoad::*field;
  };
  static const Bound kRequests, kSamples, kTokens;

  struct Tenant {
    std::string name;
    double weight = 1;
    int64_t num_places = 0;                                       // that name this tenant, counted or not
    QueueLoad load;                                               // of its counted places
    std::array<int32_t, 2 * kMaxPriority + 1> num_by_priority{};  // from -kMaxPriority on
  };

  // A request's tokens count as many as their bound at most.
  int64_t NumCounted(const Bound& bound, int64_t number) const;
  Tenant& Hold(absl::string_view name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LetGo(Tenant& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Add(const Bound& bound, int64_t number, Tenant& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsWithinShare(const Bound& bound, int64_t number, const Tenant& tenant) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds without looking at the bounds.
  void Change(const Bound& bound, int64_t number, Tenant& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const QueueLoad most_;
  const TenantShares shares_;

  mutable absl::Mutex mutex_;
  QueueLoad load_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::unique_ptr<Tenant>> tenants_ ABSL_GUARDED_BY(mutex_);
  int64_t num_waiting_tenants_ ABSL_GUARDED_BY(mutex_) = 0;
  double waiting_weights_ ABSL_GUARDED_BY(mutex_) = 0;
};

class QueuePlace {
 public:
  QueuePlace() = default;  // none
  QueuePlace(QueuePlace&& other) noexcept;
  QueuePlace& operator=(QueuePlace&& other) noexcept;
  ~QueuePlace();

  // Counts the request's samples and tokens in place of the estimates, and moves the place to the request's tenant. A
  // part that does not fit is not added. Called at most once.
  absl::Status Fill(const QueuedRequest& request);
  // One of the samples begins to run.
  void BeginSample();
  // A preempted sample waits again. It counts even if the queue then exceeds its bounds.
  void ReturnSample();

 private:
  friend class QueueSpace;
  using Tenant = QueueSpace::Tenant;

  QueuePlace(QueueSpace* space, Tenant* tenant) : space_(space), tenant_(tenant), is_counted_(true) {}
  // Counts or no longer counts the request with its tokens.
  void Count(bool counts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_->mutex_);
  void CountPriority(int32_t change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_->mutex_);

  QueueSpace* space_ = nullptr;
  Tenant* tenant_ = nullptr;
  bool is_counted_ = false;          // the request and its tokens count
  int64_t num_samples_ = 0;          // that wait; estimated until Fill
  int64_t num_tokens_ = 0;           // estimated from the bytes until Fill
  std::optional<int32_t> priority_;  // unset until Fill
};

}  // namespace foretoken::verifier
