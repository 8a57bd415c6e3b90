// SPDX-License-Identifier: Apache-2.0
// The detection of a stalled engine. If this test fails, health says SERVING while the engine hangs, or NOT_SERVING
// while it is idle, or calls wait for a hung one for ever.
#include "verifier_service/engine/stall_detector.h"

#include <gtest/gtest.h>

namespace foretoken::verifier {
namespace {

using std::chrono::seconds;

constexpr StallDetector::Clock::time_point kStart{};

TEST(StallDetector, AStallIsWorkWithoutABeat) {
  StallDetector detector(absl::Seconds(30));
  EXPECT_EQ(detector.Look({.num_beats = 1, .is_idle = false}, kStart), EngineState::kSteps);
  EXPECT_EQ(detector.Look({.num_beats = 2, .is_idle = false}, kStart + seconds(20)), EngineState::kSteps);
  EXPECT_EQ(detector.Look({.num_beats = 2, .is_idle = false}, kStart + seconds(49)), EngineState::kSteps);
  EXPECT_EQ(detector.Look({.num_beats = 2, .is_idle = false}, kStart + seconds(50)), EngineState::kStalled);
  EXPECT_EQ(detector.Look({.num_beats = 2, .is_idle = false}, kStart + seconds(79)), EngineState::kStalled);
  EXPECT_EQ(detector.Look({.num_beats = 2, .is_idle = false}, kStart + seconds(80)), EngineState::kHangs);
}

TEST(StallDetector, ABeatEndsAStall) {
  StallDetector detector(absl::Seconds(30));
  detector.Look({.num_beats = 1, .is_idle = false}, kStart);
  ASSERT_EQ(detector.Look({.num_beats = 1, .is_idle = false}, kStart + seconds(31)), EngineState::kStalled);
  EXPECT_EQ(detector.Look({.num_beats = 2, .is_idle = false}, kStart + seconds(32)), EngineState::kSteps);
  EXPECT_EQ(detector.Look({.num_beats = 2, .is_idle = false}, kStart + seconds(61)), EngineState::kSteps);
}

TEST(StallDetector, AnIdleEngineNeverStalls) {
  StallDetector detector(absl::Seconds(30));
  detector.Look({.num_beats = 1, .is_idle = true}, kStart);
  EXPECT_EQ(detector.Look({.num_beats = 1, .is_idle = true}, kStart + seconds(1000)), EngineState::kSteps);
  EXPECT_EQ(detector.Look({.num_beats = 1, .is_idle = false}, kStart + seconds(1001)), EngineState::kSteps)
      << "the engine has just begun to work";
}

}  // namespace
}  // namespace foretoken::verifier
