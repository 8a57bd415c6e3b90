// SPDX-License-Identifier: Apache-2.0
// A load of requests. In a closed loop each client sends its next request when its last one has ended. In an open loop
// requests come at random times, however long they take, as they do from many users who know nothing of each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "client/cancellation.h"
#include "client/generation_client.h"
#include "client/timed_generation.h"

namespace foretoken::client {

struct LoadOptions {
  int num_clients = 1;  // an open loop has at most so many requests at a time
  double rate = 0;      // requests per second of an open loop, in the mean; 0: a closed loop
  uint64_t seed = 1;    // of the times of an open loop
  Cancellation* cancellation = nullptr;
};

struct LoadResult {
  std::vector<TimedGeneration> generations;  // in the order of the requests
  absl::Duration wall;
  int num_sent_late = 0;  // of an open loop, by more than 10 ms, because num_clients others were running
};

// Calls `on_done` after each request, from any thread, one call at a time. After Cancel, requests that have not begun
// end as CANCELLED.
LoadResult RunLoad(GenerationClient& client, std::span<const foretoken::v1::GenerateRequest> requests,
                   const LoadOptions& options, absl::FunctionRef<void(const TimedGeneration&)> on_done);

}  // namespace foretoken::client
