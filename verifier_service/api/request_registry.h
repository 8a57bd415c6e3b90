// SPDX-License-Identifier: Apache-2.0
// The request ids in use, per tenant. Another tenant may use the same id, cannot abort its request, and cannot learn
// that it exists. An id is in use as long as a call holds its registration, even if the engine still works for a call
// that released it.
//
//   const RequestName name{.tenant = "a", .request_id = "1"};
//   FT_ASSIGN_OR_RETURN(RequestRegistry::Registration held, registry.Register(name, ticket));
//   registry.Find(name);  // the ticket
//
// Errors: Register fails with ALREADY_EXISTS for an id that the same tenant uses.
// Threads: any. The registry outlives its registrations.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "verifier_service/request/request.h"

namespace foretoken::verifier {

struct RequestName {
  std::string tenant;
  std::string request_id;

  friend bool operator==(const RequestName&, const RequestName&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const RequestName& name) {
    return H::combine(std::move(state), name.tenant, name.request_id);
  }
};

class RequestRegistry {
 public:
  // Keeps the name in use until the registration is destroyed.
  class Registration {
   public:
    Registration(RequestRegistry* registry, RequestName name) : registry_(registry), name_(std::move(name)) {}
    Registration(Registration&& other) noexcept
        : registry_(std::exchange(other.registry_, nullptr)), name_(std::move(other.name_)) {}
    Registration& operator=(Registration&& other) noexcept {
      std::swap(registry_, other.registry_);
      std::swap(name_, other.name_);
      return *this;
    }
    ~Registration() {
      if (registry_ != nullptr) registry_->Remove(name_);
    }

   private:
    RequestRegistry* registry_;
    RequestName name_;
  };

  absl::StatusOr<Registration> Register(RequestName name, Ticket ticket);
  std::optional<Ticket> Find(const RequestName& name) const;

 private:
  void Remove(const RequestName& name);

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<RequestName, Ticket> tickets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace foretoken::verifier
