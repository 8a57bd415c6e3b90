// SPDX-License-Identifier: Apache-2.0
// A verifier and three proposers under twice the load that the verifier takes, while proposers are killed, started anew
// and stopped, clients vanish, and calls are cancelled. Every output is compared with the output of a quiet run.
//
//   const SoakResult result = RunSoak({.length = absl::Seconds(600)});
//   EXPECT_THAT(result.failures, IsEmpty());
//   for (const MemoryGrowth& growth : result.growths) EXPECT_LT(growth.num_bytes(), kMaxSoakGrowthBytes);
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/testing/memory_watch.h"

namespace foretoken {

// The growth that the check for memory allows between its two looks, which are kWatchedPart of the run apart
// (testing/memory_watch.h). It leaves room for the pools of the C library, which give memory back late. So a run of ten
// minutes finds a leak of 48 KiB per second, and a run of 20 seconds one of 1.4 MiB per second.
inline constexpr int64_t kMaxSoakGrowthBytes = int64_t{16} << 20;
inline constexpr double kWatchedPart = 0.567;  // from 38 % to 95 % of the run

struct SoakOptions {
  absl::Duration length;                               // of the overload
  std::vector<std::string> verifier_environment = {};  // NAME=VALUE
};

struct SoakResult {
  // The first few of: wrong tokens, errors without a name, and what was left at the end.
  std::vector<std::string> failures;
  std::vector<testing::MemoryGrowth> growths;
  int64_t num_complete = 0;   // calls with their whole output
  int64_t num_refused = 0;    // because the queue was full
  int64_t num_cancelled = 0;  // by the client, in the middle of the output
  int64_t num_vanished = 0;   // calls whose client's connection died
  int64_t num_kills = 0, num_stops = 0;
  double calm_tokens_per_second = 0;      // as many clients as the verifier takes at a time, no faults
  double overload_tokens_per_second = 0;  // twice as many, with faults
};
std::ostream& operator<<(std::ostream& out, const SoakResult& result);

SoakResult RunSoak(const SoakOptions& options);

}  // namespace foretoken
