// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/serving/closed_loop.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "client/generation_client.h"
#include "common/base/status_macros.h"

namespace foretoken::bench {

absl::StatusOr<double> ClosedLoopRate(const std::string& address,
                                      std::span<const foretoken::v1::GenerateRequest> requests,
                                      const ClosedLoopOptions& options) {
  FT_ASSIGN_OR_RETURN(client::GenerationClient client, client::GenerationClient::Connect({.target = address}));
  const auto run = [&](absl::Duration duration) {
    const absl::Time end = absl::Now() + duration;
    std::atomic<int> num_completed = 0;
    std::vector<std::thread> clients;
    for (int i = 0; i < options.num_clients; ++i) {
      clients.emplace_back([&, i] {
        for (size_t next = 7 * i; absl::Now() < end; ++next) {
          if (client.Generate(requests[next % requests.size()]).ok() && absl::Now() < end) ++num_completed;
        }
      });
    }
    for (std::thread& thread : clients) thread.join();
    return num_completed / absl::ToDoubleSeconds(duration);
  };
  run(options.warm_up);
  const double rate = run(options.duration);
  if (rate == 0) return absl::InternalError("the closed loop completed nothing");
  return rate;
}

}  // namespace foretoken::bench
