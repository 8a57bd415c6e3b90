// SPDX-License-Identifier: Apache-2.0
// The requests that the engine works for, by ticket, and their samples that have begun, by id.
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
  // Null: there is no such request, or no such sample, any more.
  std::shared_ptr<ActiveRequest> Find(Ticket ticket) const;
  Sequence* FindSample(SequenceId id) const;
  std::vector<Ticket> Tickets() const;

  SequenceId NextId() { return next_sequence_id_++; }
  // A sample of its request begins.
  void Begin(Sequence& sequence);
  // A sample has ended. With its last sample the request leaves, too.
  void Remove(Sequence& sequence);
  // So many samples, which have not begun, never will.
  void Drop(ActiveRequest& active, int32_t num_samples);

 private:
  void RemoveIfEnded(ActiveRequest& active);

  absl::flat_hash_map<Ticket, std::shared_ptr<ActiveRequest>> requests_;  // that have samples to finish
  absl::flat_hash_map<SequenceId, Sequence*> sequences_;                  // running and preempted
  SequenceId next_sequence_id_ = 1;
};

}  // namespace foretoken::verifier
