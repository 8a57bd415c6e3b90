// SPDX-License-Identifier: Apache-2.0
#include "client/timed_generation.h"

#include <algorithm>

#include "common/base/steady_clock.h"

namespace foretoken::client {
namespace {

// A request that the server or an Abort ends early still ends with status OK, and with the tokens so far.
absl::Status CheckNotCutOff(const Generation& generation) {
  for (const Sample& sample : generation.samples) {
    if (!sample.completion.has_value()) continue;
    if (sample.completion->finish_reason() == foretoken::v1::FINISH_REASON_SHUTDOWN) {
      return absl::UnavailableError("the server shut down before the end of the output");
    }
    if (sample.completion->finish_reason() == foretoken::v1::FINISH_REASON_ABORT) {
      return absl::AbortedError("the request was aborted before the end of the output");
    }
  }
  return absl::OkStatus();
}

}  // namespace

TimedGeneration GenerateTimed(GenerationClient& client, const foretoken::v1::GenerateRequest& request,
                              absl::FunctionRef<void(const foretoken::v1::GenerateResponse&)> on_response,
                              Cancellation* cancellation) {
  TimedGeneration result;
  absl::Status append_status;
  const absl::Time start = SteadyNow();
  result.status = client.Generate(
      request,
      [&](const foretoken::v1::GenerateResponse& response) {
        if (response.token_ids_size() > 0) {
          result.arrivals.push_back({.since_start = SteadyNow() - start,
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
  result.status.Update(CheckNotCutOff(result.generation));
  return result;
}

}  // namespace foretoken::client
