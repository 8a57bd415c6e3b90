// SPDX-License-Identifier: Apache-2.0
// The detection of a stalled engine. If this test fails, health says SERVING while the engine hangs, or NOT_SERVING
// while it is idle.
#include "verifier_service/engine/stall_detector.h"

#include <gtest/gtest.h>

namespace foretoken::verifier {
namespace {

using std::chrono::seconds;

constexpr StallDetector::Clock::time_point kStart{};

TEST(StallDetector, AStallIsWorkWithoutABeat) {
  StallDetector detector(absl::Seconds(30));
  EXPECT_FALSE(detector.IsStalled({.num_beats = 1, .is_idle = false}, kStart));
  EXPECT_FALSE(detector.IsStalled({.num_beats = 2, .is_idle = false}, kStart + seconds(20)));
  EXPECT_FALSE(detector.IsStalled({.num_beats = 2, .is_idle = false}, kStart + seconds(49)));
  EXPECT_TRUE(detector.IsStalled({.num_beats = 2, .is_idle = false}, kStart + seconds(50)));
  EXPECT_TRUE(detector.IsStalled({.num_beats = 2, .is_idle = false}, kStart + seconds(90)));
}

TEST(StallDetector, ABeatEndsAStall) {
  StallDetector detector(absl::Seconds(30));
  detector.IsStalled({.num_beats = 1, .is_idle = false}, kStart);
  ASSERT_TRUE(detector.IsStalled({.num_beats = 1, .is_idle = false}, kStart + seconds(31)));
  EXPECT_FALSE(detector.IsStalled({.num_beats = 2, .is_idle = false}, kStart + seconds(32)));
  EXPECT_FALSE(detector.IsStalled({.num_beats = 2, .is_idle = false}, kStart + seconds(61)));
}

TEST(StallDetector, AnIdleEngineNeverStalls) {
  StallDetector detector(absl::Seconds(30));
  detector.IsStalled({.num_beats = 1, .is_idle = true}, kStart);
  EXPECT_FALSE(detector.IsStalled({.num_beats = 1, .is_idle = true}, kStart + seconds(1000)));
  EXPECT_FALSE(detector.IsStalled({.num_beats = 1, .is_idle = false}, kStart + seconds(1001)))
      << "the engine has just begun to work";
}

}  // namespace
}  // namespace foretoken::verifier
