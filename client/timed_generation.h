// SPDX-License-Identifier: Apache-2.0
// The output of one Generate call, with the arrival times of its messages.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cancellation.h"
#include "client/generation.h"
#include "client/generation_client.h"

namespace foretoken::client {

// A message with tokens.
struct Arrival {
  absl::Duration since_start;
  uint32_t sample_index = 0;
  int num_tokens = 0;
};

struct TimedGeneration {
  absl::Status status;
  Generation generation;  // includes the output before an error
  std::vector<Arrival> arrivals;

  // The time from the call to its last tokens; zero if none came. What `on_response` does with these tokens does not
  // count.
  absl::Duration time_to_last_token() const {
    return arrivals.empty() ? absl::ZeroDuration() : arrivals.back().since_start;
  }
};

// Runs one call. Calls `on_response` for each message. Errors: as GenerationClient; INTERNAL if the server breaks the
// protocol; UNAVAILABLE if the server shut down, or ABORTED after an Abort, before the end of the output.
TimedGeneration GenerateTimed(GenerationClient& client, const foretoken::v1::GenerateRequest& request,
                              absl::FunctionRef<void(const foretoken::v1::GenerateResponse&)> on_response,
                              Cancellation* cancellation);

}  // namespace foretoken::client
