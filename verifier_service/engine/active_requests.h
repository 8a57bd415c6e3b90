// SPDX-License-Identifier: Apache-2.0
// The requests that the engine works for, by ticket, and the begun samples of these requests, by id.
//
// Threads: the engine's.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "verifier_service/engine/sequence.h"
#include "verifier_service/request/active_request.h"

namespace foretoken::verifier {

class ActiveRequests {
 public:
  void Add(std::shared_ptr<ActiveRequest> active);
  // Find and FindSample return null if the request or the sample is unknown or has ended.
  std::shared_ptr<ActiveRequest> Find(Ticket ticket) const;
  Sequence* FindSample(SequenceId id) const;
  std::vector<Ticket> Tickets() const;

  SequenceId NextId() { return next_sequence_id_++; }
  // Adds a sample that begins.
  void Begin(Sequence& sequence);
  // Removes a sample that has ended. Removes its request too, if this was the last sample.
  void Remove(Sequence& sequence);
  // Counts `num_samples` samples as ended, because they will never begin.
  void Drop(ActiveRequest& active, int32_t num_samples);

 private:
  void RemoveIfEnded(ActiveRequest& active);

  absl::flat_hash_map<Ticket, std::shared_ptr<ActiveRequest>> requests_;  // requests with unfinished samples
  absl::flat_hash_map<SequenceId, Sequence*> sequences_;                  // running and preempted samples
  SequenceId next_sequence_id_ = 1;
};

}  // namespace foretoken::verifier
