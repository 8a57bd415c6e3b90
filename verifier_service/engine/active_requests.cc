// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/engine/active_requests.h"

#include <utility>

namespace foretoken::verifier {

void ActiveRequests::Add(std::shared_ptr<ActiveRequest> active) {
  const Ticket ticket = active->request->ticket;
  requests_.emplace(ticket, std::move(active));
}

std::shared_ptr<ActiveRequest> ActiveRequests::Find(Ticket ticket) const {
  const auto found = requests_.find(ticket);
  return found == requests_.end() ? nullptr : found->second;
}

Sequence* ActiveRequests::FindSample(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second;
}

std::vector<Ticket> ActiveRequests::Tickets() const {
  std::vector<Ticket> tickets;
  for (const auto& [ticket, active] : requests_) tickets.push_back(ticket);
  return tickets;
}

void ActiveRequests::Begin(Sequence& sequence) {
  sequences_[sequence.id] = &sequence;
  sequence.active->sequences.push_back(&sequence);
}

void ActiveRequests::Remove(Sequence& sequence) {
  sequences_.erase(sequence.id);
  std::erase(sequence.active->sequences, &sequence);
  --sequence.active->num_unfinished;
  RemoveIfEnded(*sequence.active);
}

void ActiveRequests::Drop(ActiveRequest& active, int32_t num_samples) {
  active.num_unfinished -= num_samples;
  RemoveIfEnded(active);
}

void ActiveRequests::RemoveIfEnded(ActiveRequest& active) {
  if (active.num_unfinished > 0) return;
  active.masks = {};  // freed now, although a caller may still hold `active`
  requests_.erase(active.request->ticket);
}

}  // namespace foretoken::verifier
