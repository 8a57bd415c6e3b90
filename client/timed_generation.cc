// SPDX-License-Identifier: Apache-2.0
#include "client/timed_generation.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace foretoken::client {

TimedGeneration GenerateTimed(GenerationClient& client, const foretoken::v1::GenerateRequest& request,
                              absl::FunctionRef<void(const foretoken::v1::GenerateResponse&)> on_response,
                              Cancellation* cancellation) {
  TimedGeneration result;
  absl::Status append_status;
  const absl::Time start = absl::Now();
  result.status = client.Generate(
      request,
      [&](const foretoken::v1::GenerateResponse& response) {
        if (response.token_ids_size() > 0) {
          result.arrivals.push_back({.since_start = absl::Now() - start,
                                     .sample_index = response.sample_index(),
                                     .num_tokens = response.token_ids_size()});
        }
        append_status = Append(response, result.generation);
        if (append_status.ok()) on_response(response);
        return append_status.ok();
      },
      cancellation);
  result.status.Update(append_status);
  result.status.Update(CheckComplete(result.generation, std::max<int>(1, request.sampling().n())));
  return result;
}

}  // namespace foretoken::client
