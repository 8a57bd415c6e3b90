// SPDX-License-Identifier: Apache-2.0
// A closed loop of Generate calls: each client sends its next request when the last one has ended. The rate that it
// completes is the server's capacity.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "foretoken/v1/generation.pb.h"

namespace foretoken::bench {

struct ClosedLoopOptions {
  int num_clients = 1;
  absl::Duration warm_up, duration;
};

// Returns the completed requests per second after the warm-up. A loop that completes nothing is an error.
absl::StatusOr<double> ClosedLoopRate(const std::string& address,
                                      std::span<const foretoken::v1::GenerateRequest> requests,
                                      const ClosedLoopOptions& options);

}  // namespace foretoken::bench
