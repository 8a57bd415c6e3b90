// SPDX-License-Identifier: Apache-2.0
// A closed loop of clients. Each client sends its next request when its last one has ended.
#pragma once

#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "client/cancellation.h"
#include "client/generation_client.h"
#include "client/timed_generation.h"

namespace foretoken::client {

struct LoadOptions {
  int num_clients = 1;
  Cancellation* cancellation = nullptr;
};

struct LoadResult {
  std::vector<TimedGeneration> generations;  // in the order of the requests
  absl::Duration wall;
};

// Calls `on_done` after each request, from any thread, one call at a time. After Cancel, requests that have not begun
// end as CANCELLED.
LoadResult RunLoad(GenerationClient& client, std::span<const foretoken::v1::GenerateRequest> requests,
                   const LoadOptions& options, absl::FunctionRef<void(const TimedGeneration&)> on_done);

}  // namespace foretoken::client
