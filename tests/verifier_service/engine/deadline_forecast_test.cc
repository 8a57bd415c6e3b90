// SPDX-License-Identifier: Apache-2.0
// The forecasts for requests with deadlines. If this test fails, the server refuses requests that it could have served
// in time, or lets requests wait and run in vain.
#include "verifier_service/engine/deadline_forecast.h"

#include <gtest/gtest.h>

namespace foretoken::verifier {
namespace {

constexpr int32_t kMaxRunning = 4, kMaxRows = 8;

absl::Time At(int64_t seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

TEST(DeadlineForecast, KnowsNothingAtFirst) {
  EXPECT_EQ(DeadlineForecast(kMaxRunning, kMaxRows).LeastWait(1000), absl::ZeroDuration());
}

TEST(DeadlineForecast, TakesHalfAStepAndHalfTheLinesPaceBehindThoseWhoCouldBeginNow) {
  DeadlineForecast forecast(kMaxRunning, kMaxRows);
  for (const int ms : {300, 100, 200}) forecast.ObserveStep(1, absl::Milliseconds(ms));
  forecast.ObserveLine(0, /*has_waiting=*/true, At(0));
  forecast.ObserveLine(31, /*has_waiting=*/true, At(31));
  EXPECT_EQ(forecast.LeastWait(1000), absl::Milliseconds(50)) << "too few have left the line to know its pace";
  forecast.ObserveLine(32, /*has_waiting=*/true, At(64));  // two seconds each
  EXPECT_EQ(forecast.LeastWait(kMaxRunning), absl::Milliseconds(50));
  EXPECT_EQ(forecast.LeastWait(kMaxRunning + 10), absl::Milliseconds(50) + absl::Seconds(10));
}

TEST(DeadlineForecast, ARunTakesAsLongAsTheLastOnes) {
  DeadlineForecast forecast(kMaxRunning, kMaxRows);
  EXPECT_EQ(forecast.RunTime(1000), absl::ZeroDuration()) << "nothing has run";
  forecast.ObserveRun(100, absl::Seconds(200));
  EXPECT_EQ(forecast.RunTime(10), absl::Seconds(20));
  for (int i = 0; i < 100; ++i) forecast.ObserveRun(10, absl::Seconds(10));
  EXPECT_NEAR(absl::ToDoubleSeconds(forecast.RunTime(10)), 10, 0.1);
  for (int i = 0; i < 10'000; ++i) forecast.ObserveRun(0, absl::ZeroDuration());
  EXPECT_NEAR(absl::ToDoubleSeconds(forecast.RunTime(10)), 10, 0.1) << "refused requests have not run";
}

TEST(DeadlineForecast, FollowsTheLine) {
  DeadlineForecast forecast(0, kMaxRows);
  forecast.ObserveLine(0, /*has_waiting=*/true, At(0));
  forecast.ObserveLine(40, /*has_waiting=*/true, At(80));
  EXPECT_EQ(forecast.LeastWait(10), absl::Seconds(10));
  forecast.ObserveLine(140, /*has_waiting=*/true, At(80));  // many are cancelled at once
  EXPECT_EQ(forecast.LeastWait(10), absl::ZeroDuration());
  forecast.ObserveLine(240, /*has_waiting=*/true, At(180));
  EXPECT_EQ(forecast.LeastWait(10), absl::Seconds(5));
  forecast.ObserveLine(250, /*has_waiting=*/false, At(181));
  EXPECT_EQ(forecast.LeastWait(10), absl::ZeroDuration()) << "an empty line makes nobody wait";
}

TEST(DeadlineForecast, APromptTakesHalfTheTimeOfItsFullStepsAtTheirFastest) {
  DeadlineForecast forecast(kMaxRunning, kMaxRows);
  forecast.ObserveStep(kMaxRows - 1, absl::Milliseconds(10));
  EXPECT_EQ(forecast.LeastPromptTime(100 * kMaxRows), absl::ZeroDuration()) << "no full step is known";
  for (const int ms : {300, 80, 200}) forecast.ObserveStep(kMaxRows, absl::Milliseconds(ms));
  EXPECT_EQ(forecast.LeastPromptTime(kMaxRows - 1), absl::ZeroDuration());
  EXPECT_EQ(forecast.LeastPromptTime(2 * kMaxRows + 2), absl::Milliseconds(80));
}

}  // namespace
}  // namespace foretoken::verifier
