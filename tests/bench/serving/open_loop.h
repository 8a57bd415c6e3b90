// SPDX-License-Identifier: Apache-2.0
// An open loop of Generate calls: calls begin at random times with a mean rate, however many calls are still open. One
// thread sends, and gRPC's threads take the answers.
//
//   const std::vector<OpenCall> calls =
//       RunOpenLoop(*stub, requests, {.calls_per_second = 80, .duration = absl::Seconds(30)});
//
// A call's planned time does not depend on the server. If the sender is late, the loop is not open, so each call
// records its lag. Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "foretoken/v1/generation.grpc.pb.h"

namespace foretoken::bench {

// One call. Times count from the beginning of the loop.
struct OpenCall {
  absl::Duration planned, began, first_token, ended;  // first_token: 0 without a token
  int num_tokens = 0;
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string reason;    // of an error
  std::string pushback;  // "grpc-retry-pushback-ms" in the trailers
};

struct OpenLoopOptions {
  double calls_per_second = 1;
  absl::Duration duration;
  uint64_t seed = 1;                                   // of the times
  absl::Duration deadline = absl::InfiniteDuration();  // of each call, from its beginning
  std::function<void(absl::Duration)> on_time = {};    // called by the sender before each call
};

// Returns when all calls have ended, in the order of their ends.
std::vector<OpenCall> RunOpenLoop(foretoken::v1::GenerationService::Stub& stub,
                                  std::span<const foretoken::v1::GenerateRequest> requests,
                                  const OpenLoopOptions& options);

}  // namespace foretoken::bench
