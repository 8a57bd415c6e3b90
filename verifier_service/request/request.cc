// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/request/request.h"

namespace foretoken::verifier {

absl::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kShutdown:
      return "shutdown";
  }
  return "unknown";
}

void SpeculationCounts::AddAcceptedLength(size_t length, uint64_t num_steps) {
  if (accepted_lengths.size() <= length) accepted_lengths.resize(length + 1);
  accepted_lengths[length] += num_steps;
}

void SpeculationCounts::Add(const SpeculationCounts& other) {
  for (size_t length = 0; length < other.accepted_lengths.size(); ++length) {
    AddAcceptedLength(length, other.accepted_lengths[length]);
  }
  num_proposed_nodes += other.num_proposed_nodes;
  num_verified_nodes += other.num_verified_nodes;
  num_accepted_prediction_tokens += other.num_accepted_prediction_tokens;
  num_rejected_prediction_tokens += other.num_rejected_prediction_tokens;
}

}  // namespace foretoken::verifier
