// SPDX-License-Identifier: Apache-2.0
// One Generate call with what it gave and when.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cancellation.h"
#include "client/generation.h"
#include "client/generation_client.h"

namespace foretoken::client {

// A message that brought tokens.
struct Arrival {
  absl::Duration since_start;
  uint32_t sample_index = 0;
  int num_tokens = 0;
};

struct TimedGeneration {
  absl::Status status;
  Generation generation;  // what came before an error, too
  std::vector<Arrival> arrivals;
};

// `on_response`, called for each message, may print it.
TimedGeneration GenerateTimed(GenerationClient& client, const foretoken::v1::GenerateRequest& request,
                              absl::FunctionRef<void(const foretoken::v1::GenerateResponse&)> on_response,
                              Cancellation* cancellation);

}  // namespace foretoken::client
