// SPDX-License-Identifier: Apache-2.0
// The load that gateways see. If this test fails, they send requests to the wrong server.
#include "verifier_service/vllm/load_reporter.h"

#include "gtest/gtest.h"

namespace foretoken::verifier {
namespace {

TEST(LoadReporter, ShowsTheEnginesCounters) {
  EngineStats stats;
  stats.num_queued_samples = 3;
  stats.num_queued_tokens = 70;
  stats.num_running = 2;
  stats.num_blocks = 100;
  stats.num_free_blocks = 50;
  stats.num_cached_blocks = 30;
  stats.num_prompt_tokens = 60;
  stats.num_cached_tokens = 40;
  LoadReporter reporter({.stats = [&] { return stats; }, .max_running_samples = 8});
  const engine_api::SchedulerLoad load = reporter.Report();
  EXPECT_EQ(load.num_running_reqs(), 2);
  EXPECT_EQ(load.num_waiting_reqs(), 3);
  EXPECT_EQ(load.num_total_reqs(), 5);
  EXPECT_EQ(load.num_used_tokens(), 20 * kernels::kKvBlockSize) << "blocks that only the cache keeps are not in use";
  EXPECT_EQ(load.max_total_num_tokens(), 100 * kernels::kKvBlockSize);
  EXPECT_EQ(load.token_usage(), 0.2);
  EXPECT_EQ(load.cache_hit_rate(), 0.4);
  EXPECT_EQ(load.utilization(), 0.25);
  EXPECT_EQ(load.max_running_requests(), 8);
  EXPECT_EQ(load.num_waiting_uncached_tokens(), 70);
}

TEST(LoadReporter, AnIdleServerDividesNothingByNothing) {
  LoadReporter reporter({.stats = [] { return EngineStats(); }});
  const engine_api::SchedulerLoad load = reporter.Report();
  EXPECT_EQ(load.token_usage(), 0);
  EXPECT_EQ(load.cache_hit_rate(), 0);
  EXPECT_EQ(load.utilization(), 0);
  EXPECT_EQ(load.gen_throughput(), 0);
}

TEST(LoadReporter, ThroughputIsOfTheTimeSinceACallAtLeastASecondAgo) {
  absl::Time now = absl::UnixEpoch();
  EngineStats stats;
  LoadReporter reporter({.stats = [&] { return stats; }, .now = [&] { return now; }});
  now += absl::Seconds(2);
  stats.num_generated_tokens = 100;
  EXPECT_EQ(reporter.Report().gen_throughput(), 50);
  now += absl::Milliseconds(500);
  stats.num_generated_tokens = 1000;
  EXPECT_EQ(reporter.Report().gen_throughput(), 50) << "too soon to measure again";
  now += absl::Milliseconds(500);
  EXPECT_EQ(reporter.Report().gen_throughput(), 900);
  now += absl::Seconds(10);
  EXPECT_EQ(reporter.Report().gen_throughput(), 0);
  now += absl::Seconds(10);
  stats.num_generated_tokens = 990;  // as another thread counted earlier
  EXPECT_EQ(reporter.Report().gen_throughput(), 0);
}

}  // namespace
}  // namespace foretoken::verifier
