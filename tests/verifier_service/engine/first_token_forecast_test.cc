// SPDX-License-Identifier: Apache-2.0
// The forecast of a request's first token. If this test fails, the server refuses requests that could have had a token
// in time, or lets requests wait in vain.
#include "verifier_service/engine/first_token_forecast.h"

#include <gtest/gtest.h>

namespace foretoken::verifier {
namespace {

constexpr int32_t kMaxRunning = 4;

absl::Time At(int64_t seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

TEST(FirstTokenForecast, KnowsNothingAtFirst) {
  EXPECT_EQ(FirstTokenForecast(kMaxRunning).LeastWait(1000), absl::ZeroDuration());
}

TEST(FirstTokenForecast, TakesHalfAStepAndHalfTheLinesPaceBehindThoseWhoCouldBeginNow) {
  FirstTokenForecast forecast(kMaxRunning);
  forecast.ObserveStep(absl::Milliseconds(100));
  forecast.ObserveLine(0, /*has_waiting=*/true, At(0));
  forecast.ObserveLine(31, /*has_waiting=*/true, At(31));
  EXPECT_EQ(forecast.LeastWait(1000), absl::Milliseconds(50)) << "too few have left the line to know its pace";
  forecast.ObserveLine(32, /*has_waiting=*/true, At(64));  // two seconds each
  EXPECT_EQ(forecast.LeastWait(kMaxRunning), absl::Milliseconds(50));
  EXPECT_EQ(forecast.LeastWait(kMaxRunning + 10), absl::Milliseconds(50) + absl::Seconds(10));
}

TEST(FirstTokenForecast, FollowsTheLine) {
  FirstTokenForecast forecast(0);
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

TEST(LeastPromptTime, IsHalfTheTimeOfFullStepsAndOfTheRest) {
  StepCost cost(/*max_rows=*/8);
  cost.Observe({.num_rows = 8}, 80);
  cost.Observe({.num_rows = 2}, 20);
  EXPECT_EQ(LeastPromptTime(2, 8, cost), absl::Milliseconds(10));
  EXPECT_EQ(LeastPromptTime(8, 8, cost), absl::Milliseconds(40));
  EXPECT_EQ(LeastPromptTime(18, 8, cost), absl::Milliseconds(90));
}

}  // namespace
}  // namespace foretoken::verifier
