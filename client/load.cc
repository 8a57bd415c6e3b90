// SPDX-License-Identifier: Apache-2.0
#include "client/load.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/steady_clock.h"

namespace foretoken::client {
namespace {

constexpr absl::Duration kLate = absl::Milliseconds(10);

// When each request is sent, after the start. The gaps are exponential, so the requests come independently.
std::vector<absl::Duration> SendTimes(size_t num_requests, const LoadOptions& options) {
  std::vector<absl::Duration> times(num_requests);
  if (options.rate <= 0) return times;
  std::mt19937_64 random(options.seed);
  std::exponential_distribution<double> gap_s(options.rate);
  absl::Duration at;
  for (absl::Duration& time : times) time = at += absl::Seconds(gap_s(random));
  return times;
}

// `time` is of the steady clock.
void SleepUntil(absl::Time time, const Cancellation* cancellation) {
  for (absl::Time now = SteadyNow(); now < time; now = SteadyNow()) {
    if (cancellation != nullptr && cancellation->cancelled()) return;
    absl::SleepFor(std::min(time - now, absl::Milliseconds(100)));
  }
}

}  // namespace

LoadResult RunLoad(GenerationClient& client, std::span<const foretoken::v1::GenerateRequest> requests,
                   const LoadOptions& options, absl::FunctionRef<void(const TimedGeneration&)> on_done) {
  LoadResult result;
  result.generations.resize(requests.size());
  const std::vector<absl::Duration> send_times = SendTimes(requests.size(), options);
  std::atomic<size_t> next = 0;
  std::atomic<int> num_sent_late = 0;
  absl::Mutex done_mutex;
  const absl::Time start = SteadyNow();
  const auto run_client = [&] {
    for (size_t i = next++; i < requests.size(); i = next++) {
      SleepUntil(start + send_times[i], options.cancellation);
      if (options.rate > 0 && SteadyNow() - start > send_times[i] + kLate) ++num_sent_late;
      result.generations[i] = GenerateTimed(
          client, requests[i], [](const foretoken::v1::GenerateResponse&) {}, options.cancellation);
      absl::MutexLock lock(&done_mutex);
      on_done(result.generations[i]);
    }
  };
  std::vector<std::jthread> clients;
  const auto num_clients = std::min<size_t>(options.num_clients, requests.size());
  for (size_t i = 0; i < num_clients; ++i) clients.emplace_back(run_client);
  clients.clear();  // joins
  result.wall = SteadyNow() - start;
  result.num_sent_late = num_sent_late;
  return result;
}

}  // namespace foretoken::client
