// SPDX-License-Identifier: Apache-2.0
// What the client side needs of the engine, as functions: main binds them to an Engine, tests to a script.
//
// Threads: called from any. Errors: those of Engine's methods of the same names.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "verifier_service/engine/queue_place.h"
#include "verifier_service/engine/request.h"

namespace foretoken::verifier {

struct EnginePort {
  std::function<absl::StatusOr<QueuePlace>(int64_t num_bytes)> reserve;
  std::function<absl::Status(QueuePlace, GenerationRequest)> submit;
  std::function<void(Ticket)> abort;
};

}  // namespace foretoken::verifier
