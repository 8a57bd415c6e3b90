// SPDX-License-Identifier: Apache-2.0
// The soak, short and long, and a control with a process that leaks. If this test fails, faults under load change a
// client's tokens, leave a call without an answer, or let a process grow without end.
#include "tests/faults/soak.h"

#include <cstdlib>
#include <iostream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/preload/leak.h"
#include "tests/faults/quiet_levels.h"

namespace foretoken {
namespace {

// Of the tokens per second without faults: faults interrupt speculation, and the clients share the services' cores.
constexpr double kMinThroughput = 0.5;

void ExpectASoundSoak(absl::Duration length) {
  const SoakResult result = RunSoak({.length = length});
  std::cout << result;
  EXPECT_THAT(result.failures, ::testing::IsEmpty());
  EXPECT_GT(result.num_complete, 0);
  EXPECT_GT(result.overload_tokens_per_second, kMinThroughput * result.calm_tokens_per_second);
  EXPECT_GT(result.num_refused, 0) << "the test proves nothing: there is no overload";
  EXPECT_GT(result.num_cancelled, 0);
  EXPECT_GT(result.num_vanished, 0);
  EXPECT_GT(result.num_kills, 0);
  EXPECT_GT(result.num_stops, 0);
  if (kIsSanitized) return;
  for (const testing::MemoryGrowth& growth : result.growths) {
    EXPECT_GT(growth.end_bytes, 0) << growth.name << " has ended";
    EXPECT_LT(growth.num_bytes(), kMaxSoakGrowthBytes) << growth.name;
  }
}

TEST(Soak, GivesTheTokensOfAQuietRunAndDoesNotGrow) { ExpectASoundSoak(absl::Seconds(20)); }

// The process leaks twice what the check allows.
TEST(Soak, FindsAProcessThatLeaks) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer must be loaded before any other library";
  constexpr absl::Duration kLength = absl::Seconds(12);
  const double watched_seconds = kWatchedPart * absl::ToDoubleSeconds(kLength);
  const auto bytes_per_second = static_cast<int64_t>(2 * kMaxSoakGrowthBytes / watched_seconds);
  const SoakResult result = RunSoak({.length = kLength, .verifier_environment = LeakEnvironment(bytes_per_second)});
  std::cout << result;
  EXPECT_GT(result.growths.at(0).num_bytes(), kMaxSoakGrowthBytes) << result.growths.at(0).name;
}

// `./dev soak SECONDS` sets the variable.
TEST(SoakLong, GivesTheTokensOfAQuietRunAndDoesNotGrow) {
  const char* seconds = std::getenv("FORETOKEN_SOAK_SECONDS");
  ExpectASoundSoak(absl::Seconds(seconds == nullptr ? 600 : std::atoi(seconds)));
}

}  // namespace
}  // namespace foretoken
