// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/request_registry.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/error_text.h"

namespace foretoken::verifier {

RequestRegistry::Registration RequestRegistry::Register(RequestName name, Ticket ticket) {
  absl::MutexLock lock(&mutex_);
  calls_[name].tickets.push_back(ticket);
  return Registration(this, std::move(name), ticket);
}

absl::Status RequestRegistry::Claim(const RequestName& name, Ticket ticket) {
  absl::MutexLock lock(&mutex_);
  std::optional<Ticket>& in_use_by = calls_.at(name).in_use_by;
  if (in_use_by.value_or(ticket) != ticket) {
    return base::WithReason(
        absl::AlreadyExistsError(absl::StrCat("request_id: ", base::Quoted(name.request_id), " is in use")),
        "REQUEST_ID_IN_USE");
  }
  in_use_by = ticket;
  return absl::OkStatus();
}

std::vector<Ticket> RequestRegistry::Find(const RequestName& name) const {
  absl::MutexLock lock(&mutex_);
  const auto calls = calls_.find(name);
  return calls == calls_.end() ? std::vector<Ticket>() : calls->second.tickets;
}

void RequestRegistry::Remove(const RequestName& name, Ticket ticket) {
  absl::MutexLock lock(&mutex_);
  const auto calls = calls_.find(name);
  std::erase(calls->second.tickets, ticket);
  if (calls->second.in_use_by == ticket) calls->second.in_use_by.reset();
  if (calls->second.tickets.empty()) calls_.erase(calls);
}

}  // namespace foretoken::verifier
