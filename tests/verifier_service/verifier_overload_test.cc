// SPDX-License-Identifier: Apache-2.0
// A whole verifier with more calls than it can serve. If this test fails, a burst grows the queue beyond its bounds, or
// calls end without a result and without a named error.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/call_burst.h"
#include "tests/testing/running_verifier.h"

namespace foretoken::verifier {
namespace {

using testing::CallBurst;
using testing::DemoConfig;
using testing::Greedy;
using testing::RunningVerifier;

TEST(Verifier, ABurstOfAThousandCallsStaysWithinTheQueue) {
  constexpr int kNumCalls = 1000, kNumPlaces = 20;
  Config config = DemoConfig();
  config.engine.max_queued_requests = kNumPlaces;
  config.engine.max_running_samples = 1;
  RunningVerifier verifier(config);
  // A request that runs until the burst has been refused keeps all places taken.
  grpc::ClientContext context;
  const auto running = verifier.stub().Generate(&context, Greedy("import os\n", 1000));
  v1::GenerateResponse response;
  ASSERT_TRUE(running->Read(&response));
  CallBurst burst(verifier.stub(), Greedy("import os\n", 1), kNumCalls);
  for (; burst.num("OK") + burst.num("QUEUE_FULL") < kNumCalls; absl::SleepFor(absl::Milliseconds(1))) {
    const EngineStats stats = verifier->GetStats();
    ASSERT_LE(stats.num_queued, kNumPlaces);
    ASSERT_LE(stats.num_queued_samples, kNumPlaces);
  }
  burst.WaitForAll();
  EXPECT_GE(burst.num("OK"), kNumPlaces);
  EXPECT_EQ(burst.num("OK") + burst.num("QUEUE_FULL"), kNumCalls);
  while (running->Read(&response)) continue;
  EXPECT_TRUE(running->Finish().ok());
  EXPECT_TRUE(verifier.WaitUntil([](const EngineStats& stats) { return stats.num_queued + stats.num_running == 0; }));
}

TEST(Verifier, ADeadlineThatPassesInTheQueueCostsNoToken) {
  Config config = DemoConfig();
  config.engine.max_running_samples = 1;
  RunningVerifier verifier(config);
  grpc::ClientContext context, late_context;
  v1::GenerateRequest long_request = Greedy("import os\n", 1000);
  long_request.mutable_sampling()->set_n(16);
  const auto running = verifier.stub().Generate(&context, long_request);
  v1::GenerateResponse response;
  ASSERT_TRUE(running->Read(&response));
  late_context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Milliseconds(20)));
  const auto late = verifier.stub().Generate(&late_context, Greedy("import sys\n", 1000));
  EXPECT_FALSE(late->Read(&response));
  // A slow machine may refuse the deadline as too short.
  EXPECT_THAT(late->Finish().error_code(),
              ::testing::AnyOf(grpc::StatusCode::DEADLINE_EXCEEDED, grpc::StatusCode::RESOURCE_EXHAUSTED));
  context.TryCancel();
  EXPECT_TRUE(verifier.WaitUntil([](const EngineStats& stats) { return stats.num_queued + stats.num_running == 0; }));
}

}  // namespace
}  // namespace foretoken::verifier
