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

// The growth that the check for memory allows after the first third. It leaves room for the pools of the C library,
// which give memory back late; a leak of 100 bytes per request or step exceeds it within ten minutes.
inline constexpr int64_t kMaxSoakGrowthBytes = int64_t{16} << 20;

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
