// SPDX-License-Identifier: Apache-2.0
#include "client/load.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace foretoken::client {

LoadResult RunLoad(GenerationClient& client, std::span<const foretoken::v1::GenerateRequest> requests,
                   const LoadOptions& options, absl::FunctionRef<void(const TimedGeneration&)> on_done) {
  LoadResult result;
  result.generations.resize(requests.size());
  std::atomic<size_t> next = 0;
  absl::Mutex done_mutex;
  const auto run_client = [&] {
    for (size_t i = next++; i < requests.size(); i = next++) {
      result.generations[i] = GenerateTimed(
          client, requests[i], [](const foretoken::v1::GenerateResponse&) {}, options.cancellation);
      absl::MutexLock lock(&done_mutex);
      on_done(result.generations[i]);
    }
  };
  const absl::Time start = absl::Now();
  std::vector<std::jthread> clients;
  for (int i = 0; i < options.num_clients; ++i) clients.emplace_back(run_client);
  clients.clear();  // joins
  result.wall = absl::Now() - start;
  return result;
}

}  // namespace foretoken::client
