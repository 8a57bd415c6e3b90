// SPDX-License-Identifier: Apache-2.0
// A whole verifier with the demo model, over loopback: calls that end early, calls that wait, draining and health. If
// this test fails, an ended call keeps its place, a full or draining server does not say so, a server does not drain,
// or it reports wrong health.
#include <chrono>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/testing/error_details.h"
#include "tests/testing/health.h"
#include "tests/testing/running_verifier.h"
#include "verifier_service/verifier.h"

namespace foretoken::verifier {
namespace {

using ::testing::AnyOf;
using testing::CheckHealth;
using testing::DemoConfig;
using testing::Greedy;
using ::testing::HasSubstr;
using testing::Health;
using testing::RunningVerifier;

// A request that runs longer than any test waits.
v1::GenerateRequest Endless() {
  v1::GenerateRequest request = Greedy("import os\n", 1000);
  request.mutable_sampling()->set_n(16);
  return request;
}

bool IsIdle(const EngineStats& stats) { return stats.num_running == 0 && stats.num_queued == 0; }

TEST(Verifier, ACancelledCallFreesItsPlace) {
  RunningVerifier verifier;
  grpc::ClientContext context;
  const auto reader = verifier.stub().Generate(&context, Endless());
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  context.TryCancel();
  EXPECT_TRUE(verifier.WaitUntil(IsIdle));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  const EngineStats stats = verifier->GetStats();
  EXPECT_LT(stats.num_generated_tokens, 16 * 1000);
  EXPECT_EQ(stats.num_free_blocks + stats.num_cached_blocks, stats.num_blocks);
}

TEST(Verifier, ADeadlineEndsACall) {
  RunningVerifier verifier;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  const auto reader = verifier.stub().Generate(&context, Endless());
  v1::GenerateResponse response;
  while (reader->Read(&response)) continue;
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(verifier.WaitUntil(IsIdle));
}

TEST(Verifier, AbortEndsACallWithItsReason) {
  RunningVerifier verifier;
  v1::GenerateRequest request = Endless();
  request.set_request_id("mine");
  grpc::ClientContext context;
  const auto reader = verifier.stub().Generate(&context, request);
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(verifier.Generate(request).status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  grpc::ClientContext abort_context;
  v1::AbortRequest abort;
  abort.set_request_id("mine");
  v1::AbortResponse aborted;
  ASSERT_TRUE(verifier.stub().Abort(&abort_context, abort, &aborted).ok());
  EXPECT_TRUE(aborted.aborted());
  v1::Completion completion;
  while (reader->Read(&response)) completion = response.completion();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(completion.finish_reason(), v1::FINISH_REASON_ABORT);
}

TEST(Verifier, AFullQueueRefuses) {
  Config config = DemoConfig();
  config.engine.max_queued_requests = 2;  // one of the two still has waiting samples
  config.engine.max_running_samples = 1;
  RunningVerifier verifier(config);
  grpc::ClientContext contexts[2];
  const auto running = verifier.stub().Generate(&contexts[0], Endless());
  v1::GenerateResponse response;
  ASSERT_TRUE(running->Read(&response));
  const auto waiting = verifier.stub().Generate(&contexts[1], Greedy("import os\n", 900));
  ASSERT_TRUE(verifier.WaitUntil([](const EngineStats& stats) { return stats.num_queued == 2; }));
  EXPECT_EQ(verifier.Generate(Greedy("import os\n", 1)).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  EXPECT_TRUE(verifier.WaitUntil(IsIdle));
  EXPECT_TRUE(verifier.Generate(Greedy("import os\n", 1)).status.ok());
}

TEST(Verifier, AQueueFullOfOneRequestsSamplesRefuses) {
  Config config = DemoConfig();
  config.engine.max_queued_samples = 10;
  config.engine.max_running_samples = 1;
  RunningVerifier verifier(config);
  grpc::ClientContext context;
  const auto running = verifier.stub().Generate(&context, Endless());  // 16 samples
  v1::GenerateResponse response;
  ASSERT_TRUE(running->Read(&response));
  const grpc::Status refused = verifier.Generate(Greedy("import os\n", 1)).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("max_queued_samples is 10, 15 wait"));
  context.TryCancel();
  EXPECT_TRUE(verifier.WaitUntil(IsIdle));
  EXPECT_TRUE(verifier.Generate(Greedy("import os\n", 1)).status.ok());
}

TEST(Verifier, DrainingFinishesRunningRequestsAndRefusesNewOnes) {
  Config config = DemoConfig();
  config.drain_grace = absl::Seconds(60);
  RunningVerifier verifier(config);
  grpc::ClientContext context;
  const auto reader = verifier.stub().Generate(&context, Greedy("import os\n", 400));
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  std::thread drain([&] { verifier->Drain(); });
  grpc::Status refused;
  while ((refused = verifier.Generate(Greedy("import os\n", 1)).status).ok()) continue;
  // gRPC cancels a call that comes before the client knows that the server has closed.
  EXPECT_TRUE(refused.error_code() == grpc::StatusCode::UNAVAILABLE ||
              refused.error_code() == grpc::StatusCode::CANCELLED)
      << refused.error_message();
  v1::Completion completion;
  while (reader->Read(&response)) completion = response.completion();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(completion.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(completion.usage().completion_tokens(), 400);
  drain.join();
}

// gRPC closes an old connection with its last call, and a client that still acknowledges messages would lose the end.
TEST(Verifier, TheLastCallOfAnOldConnectionEndsAMomentAfterItsOutput) {
  Config config = DemoConfig();
  config.max_connection_age = absl::Milliseconds(100);
  RunningVerifier verifier(config);
  grpc::ClientContext context;
  const auto reader = verifier.stub().Generate(&context, Greedy("import os\n", 400));
  v1::GenerateResponse response;
  absl::Time last_read;
  while (reader->Read(&response)) last_read = absl::Now();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(response.completion().usage().completion_tokens(), 400);
  EXPECT_GE(absl::Now() - last_read, absl::Milliseconds(150));
}

TEST(Verifier, DrainingEndsRequestsAfterTheGrace) {
  Config config = DemoConfig();
  config.drain_grace = absl::ZeroDuration();
  RunningVerifier verifier(config);
  grpc::ClientContext context;
  const auto reader = verifier.stub().Generate(&context, Endless());
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  std::thread drain([&] { verifier->Drain(); });
  int num_ended = 0;
  while (reader->Read(&response)) {
    num_ended += response.completion().finish_reason() == v1::FINISH_REASON_SHUTDOWN;
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(num_ended, 16);
  drain.join();
}

TEST(Verifier, DrainingDoesNotWaitForClientsThatDoNotRead) {
  Config config = DemoConfig();
  config.drain_grace = absl::ZeroDuration();
  RunningVerifier verifier(config);
  v1::GenerateRequest request = Greedy("import os\n", 100);
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_sampling()->set_n(16);
  request.mutable_output()->set_logprobs(20);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // keeps windows small, so that most of the output waits at the server
  const auto stub = v1::GenerationService::NewStub(grpc::CreateCustomChannel(
      "127.0.0.1:" + std::to_string(verifier->port()), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, request);
  ASSERT_TRUE(verifier.WaitUntil(
      [](const EngineStats& stats) { return stats.num_generated_tokens == 16 * 100 && stats.num_running == 0; }));
  const absl::Time began = absl::Now();
  verifier->Drain();
  EXPECT_LT(absl::Now() - began, absl::Seconds(8)) << "four seconds, plus time for a slow machine";
  v1::GenerateResponse response;
  while (reader->Read(&response)) continue;
  EXPECT_FALSE(reader->Finish().ok());
}

TEST(Verifier, DrainingRefusesWaitingRequests) {
  Config config = DemoConfig();
  config.drain_grace = absl::ZeroDuration();
  config.engine.max_running_samples = 1;
  RunningVerifier verifier(config);
  grpc::ClientContext contexts[2];
  const auto running = verifier.stub().Generate(&contexts[0], Endless());
  v1::GenerateResponse response;
  ASSERT_TRUE(running->Read(&response));
  v1::GenerateRequest last = Greedy("import os\n", 900);
  last.set_priority(-100);  // behind all samples of the first request
  const auto waiting = verifier.stub().Generate(&contexts[1], last);
  ASSERT_TRUE(verifier.WaitUntil([](const EngineStats& stats) { return stats.num_queued == 2; }));
  std::thread drain([&] { verifier->Drain(); });
  EXPECT_FALSE(waiting->Read(&response));
  EXPECT_EQ(waiting->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  while (running->Read(&response)) continue;
  EXPECT_TRUE(running->Finish().ok());
  drain.join();
}

TEST(Verifier, ARequestIdCanBeUsedAgainRightAfterItsDeadline) {
  RunningVerifier verifier;
  v1::GenerateRequest request = Endless();
  request.set_request_id("mine");
  for (int i = 0; i < 60; ++i) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(40));
    const auto reader = verifier.stub().Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) continue;
    const grpc::Status status = reader->Finish();
    // A slow machine may refuse the deadline as too short instead.
    ASSERT_THAT(status.error_code(), AnyOf(grpc::StatusCode::DEADLINE_EXCEEDED, grpc::StatusCode::RESOURCE_EXHAUSTED))
        << i << ": " << status.error_message();
  }
}

TEST(Verifier, IsUnhealthyWhileAStepTakesTooLong) {
  Config config = DemoConfig();
  config.engine_stall_timeout = absl::Milliseconds(1);  // shorter than a step with sixteen sequences
  RunningVerifier verifier(config);
  const auto channel =
      grpc::CreateChannel("127.0.0.1:" + std::to_string(verifier->port()), grpc::InsecureChannelCredentials());
  const auto becomes = [&](Health health) {
    for (const absl::Time end = absl::Now() + testing::kPatience; absl::Now() < end;) {
      if (CheckHealth(channel, "foretoken.v1.GenerationService") == health) return true;
    }
    return false;
  };
  EXPECT_EQ(CheckHealth(channel), Health::kServing) << "from the start";
  grpc::ClientContext context;
  const auto reader = verifier.stub().Generate(&context, Endless());
  EXPECT_TRUE(becomes(Health::kNotServing));
  context.TryCancel();
  EXPECT_TRUE(verifier.WaitUntil(IsIdle));
  EXPECT_TRUE(becomes(Health::kServing)) << "an engine without work is healthy";
}

TEST(Verifier, EndsTheCallsOfAnEngineThatHangs) {
  Config config = DemoConfig();
  config.engine_stall_timeout = absl::Milliseconds(1);  // a step with sixteen sequences takes more than twice as long
  RunningVerifier verifier(config);
  grpc::ClientContext context;
  const auto reader = verifier.stub().Generate(&context, Endless());
  v1::GenerateResponse response;
  while (reader->Read(&response)) continue;
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(testing::ReasonOf(status), "ENGINE_STALLED");
  EXPECT_TRUE(verifier.WaitUntil(IsIdle)) << "the engine has ended it when it steps again";
}

}  // namespace
}  // namespace foretoken::verifier
