// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/request_registry.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"

namespace foretoken::verifier {

absl::StatusOr<RequestRegistry::Registration> RequestRegistry::Register(RequestName name, Ticket ticket) {
  absl::MutexLock lock(&mutex_);
  if (!tickets_.try_emplace(name, ticket).second) {
    return base::WithReason(
        absl::AlreadyExistsError(absl::StrCat("request_id: ", base::Quoted(name.request_id), " is in use")),
        "REQUEST_ID_IN_USE");
  }
  return Registration(this, std::move(name));
}

std::optional<Ticket> RequestRegistry::Find(const RequestName& name) const {
  absl::MutexLock lock(&mutex_);
  const auto ticket = tickets_.find(name);
  if (ticket == tickets_.end()) return std::nullopt;
  return ticket->second;
}

void RequestRegistry::Remove(const RequestName& name) {
  absl::MutexLock lock(&mutex_);
  tickets_.erase(name);
}

}  // namespace foretoken::verifier
