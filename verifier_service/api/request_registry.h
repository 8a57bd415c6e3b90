// SPDX-License-Identifier: Apache-2.0
// The calls by the names of their requests, and the request ids in use, per tenant. Another tenant may use the same id,
// cannot abort its request, and cannot learn that it exists. A call has its name from its arrival on, so that it can be
// found while it waits. Its id is in use from Claim on, as long as the call holds its registration, even if the engine
// still works for a call that released it.
//
//   const RequestName name{.tenant = "a", .request_id = "1"};
//   RequestRegistry::Registration held = registry.Register(name, ticket);
//   registry.Find(name);                 // {ticket}
//   FT_RETURN_IF_ERROR(held.Claim());    // before the request runs
//
// Errors: Claim fails with ALREADY_EXISTS for an id that the same tenant uses.
// Threads: any. The registry outlives its registrations.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
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
  // The call has the name until its registration is destroyed.
  class Registration {
   public:
    Registration(RequestRegistry* registry, RequestName name, Ticket ticket)
        : registry_(registry), name_(std::move(name)), ticket_(ticket) {}
    Registration(Registration&& other) noexcept
        : registry_(std::exchange(other.registry_, nullptr)), name_(std::move(other.name_)), ticket_(other.ticket_) {}
    Registration& operator=(Registration&& other) noexcept {
      std::swap(registry_, other.registry_);
      std::swap(name_, other.name_);
      std::swap(ticket_, other.ticket_);
      return *this;
    }
    ~Registration() {
      if (registry_ != nullptr) registry_->Remove(name_, ticket_);
    }

    const RequestName& name() const { return name_; }
    absl::Status Claim() { return registry_->Claim(name_, ticket_); }

   private:
    RequestRegistry* registry_;
    RequestName name_;
    Ticket ticket_;
  };

  Registration Register(RequestName name, Ticket ticket);
  // The calls with this name. Several may wait for one id.
  std::vector<Ticket> Find(const RequestName& name) const;

 private:
  struct Calls {
    std::vector<Ticket> tickets;
    std::optional<Ticket> in_use_by;  // one of them
  };

  absl::Status Claim(const RequestName& name, Ticket ticket);
  void Remove(const RequestName& name, Ticket ticket);

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<RequestName, Calls> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace foretoken::verifier
