// SPDX-License-Identifier: Apache-2.0
// The functions of the engine that the client API calls. The verifier binds them to an Engine; tests bind them to a
// script.
//
// Threads: any. Errors: those of Engine's methods of the same names.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "verifier_service/request/queue_place.h"
#include "verifier_service/request/request.h"

namespace foretoken::verifier {

struct EnginePort {
  std::function<absl::StatusOr<QueuePlace>(const RequestArrival& arrival)> reserve;
  std::function<absl::Status(QueuePlace, GenerationRequest)> submit;
  std::function<void(Ticket)> abort;
};

}  // namespace foretoken::verifier
