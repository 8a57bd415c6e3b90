// SPDX-License-Identifier: Apache-2.0
// More calls than the service has places for. If this test fails, a burst makes the service read requests that it then
// refuses, or clients do not learn when a retry may help.
#include <optional>
#include <string>
#include <vector>

#include "common/base/error_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/call_burst.h"
#include "tests/testing/error_details.h"
#include "tests/verifier_service/api/generation_service_fixture.h"

namespace foretoken::verifier {
namespace {

using testing::CallBurst;

// What a refused client learns.
struct Refusal {
  std::string reason;
  bool has_retry_info = false;
  std::optional<std::string> pushback;
};

Refusal RefusalOf(const grpc::Status& status, const grpc::ClientContext& context) {
  Refusal refusal = {.reason = testing::ReasonOf(status),
                     .has_retry_info = testing::FindDetail<google::rpc::RetryInfo>(status).has_value()};
  const auto found = context.GetServerTrailingMetadata().find("grpc-retry-pushback-ms");
  if (found != context.GetServerTrailingMetadata().end())
    refusal.pushback = {found->second.begin(), found->second.end()};
  return refusal;
}

class OverloadTest : public GenerationServiceTest {
 protected:
  explicit OverloadTest(int32_t max_lookups = 0) : GenerationServiceTest(max_lookups) {}

  Refusal Refused() {
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, Request());
    v1::GenerateResponse response;
    EXPECT_FALSE(reader->Read(&response));
    return RefusalOf(reader->Finish(), context);
  }
};

TEST_F(OverloadTest, AFullQueueTellsWhenToRetry) {
  engine_.max_queued = 0;
  const Refusal refusal = Refused();
  EXPECT_TRUE(refusal.has_retry_info);
  EXPECT_EQ(refusal.pushback, "1000");
}

TEST_F(OverloadTest, ARequestAsksForThePlaceOfItsTenantBeforeItIsParsed) {
  engine_.max_queued = 0;
  grpc::ClientContext context;
  v1::GenerateRequest request = Request();
  request.set_tenant("a tenant");
  request.set_text(std::string(100'000, 'x'));
  const auto reader = stub_->Generate(&context, request);
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(engine_.arrived_tenants(), std::vector<std::string>{"a tenant"});
  EXPECT_EQ(engine_.last_arrival_bytes(), request.ByteSizeLong());
}

// Else a request for many samples would be parsed, tokenised and compiled before it is refused.
TEST_F(OverloadTest, ARequestAsksForThePlacesOfItsSamplesBeforeItIsParsed) {
  engine_.max_queued = 0;
  const auto arrived_for = [this](uint32_t n) {
    grpc::ClientContext context;
    v1::GenerateRequest request = Request();
    request.mutable_sampling()->set_n(n);
    const auto reader = stub_->Generate(&context, request);
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    return engine_.last_arrival_samples();
  };
  EXPECT_EQ(arrived_for(7), 7);
  EXPECT_EQ(arrived_for(0), 1) << "not valid, and a place is not refused for it";
  EXPECT_EQ(arrived_for(~uint32_t{0}), 64) << "likewise";
}

TEST_F(OverloadTest, FullLookupsTellWhenToRetry) {
  grpc::ClientContext contexts[2];
  v1::TokenizeRequest text;
  v1::TokenizeResponse ids;
  v1::DetokenizeResponse text_again;
  const Refusal refusals[] = {RefusalOf(stub_->Tokenize(&contexts[0], text, &ids), contexts[0]),
                              RefusalOf(stub_->Detokenize(&contexts[1], {}, &text_again), contexts[1])};
  for (const Refusal& refusal : refusals) {
    EXPECT_EQ(refusal.reason, "LOOKUPS_FULL");
    EXPECT_TRUE(refusal.has_retry_info);
    EXPECT_EQ(refusal.pushback, "1000");
  }
}

TEST_F(OverloadTest, ADrainingServerLeavesTheTimeOfTheRetryToTheClient) {
  engine_.is_draining = true;
  const Refusal refusal = Refused();
  EXPECT_TRUE(refusal.has_retry_info);
  EXPECT_EQ(refusal.pushback, std::nullopt) << "another server may take the request at once";
}

TEST_F(OverloadTest, ADeadlineThatIsTooShortIsNotARetrysBusiness) {
  engine_.submit_status = base::WithReason(absl::ResourceExhaustedError("too short"), "DEADLINE_TOO_SHORT");
  const Refusal refusal = Refused();
  EXPECT_EQ(refusal.reason, "DEADLINE_TOO_SHORT");
  EXPECT_FALSE(refusal.has_retry_info);
  EXPECT_EQ(refusal.pushback, std::nullopt);
}

TEST_F(OverloadTest, ARefusalOfTheEngineCountsAsARefusalAndNotAsARequestThatEnded) {
  for (const char* reason : {"DEADLINE_TOO_SHORT", "QUEUE_FULL", "TENANT_QUEUE_FULL"}) {
    engine_.submit_status = base::WithReason(absl::ResourceExhaustedError("no"), reason);
    EXPECT_EQ(Refused().reason, reason);
  }
  ASSERT_TRUE(calls_->WaitUntilIdle(kSoon));
  EXPECT_EQ(ReadMetric("foretoken_refusal_seconds"), 3);
  EXPECT_EQ(ReadMetric("foretoken_samples_finished_total,reason=abort"), 0);
  EXPECT_EQ(ReadMetric("foretoken_queue_wait_seconds"), 0);
  EXPECT_EQ(ReadMetric("foretoken_request_max_tokens"), 0);
}

TEST_F(OverloadTest, TheEngineLearnsTheDeadline) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Hours(1)));
  const auto reader = stub_->Generate(&context, Request());
  const absl::Duration left = engine_.WaitForRequest().deadline - SteadyNow();
  EXPECT_GT(left, absl::Minutes(50));
  EXPECT_LT(left, absl::Minutes(70)) << "gRPC rounds a long time up";
  context.TryCancel();
}

TEST_F(OverloadTest, ADeadlineInSomeCenturiesHasNotPassed) {
  constexpr int64_t kMostHours = 99'999'999;  // that gRPC's header can hold
  grpc::ClientContext context;
  context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), gpr_time_from_hours(kMostHours, GPR_TIMESPAN)));
  const auto reader = stub_->Generate(&context, Request());
  EXPECT_EQ(engine_.WaitForRequest().deadline, absl::InfiniteFuture());
  context.TryCancel();
}

TEST_F(OverloadTest, ARequestWithoutADeadlineMayWaitForever) {
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Request());
  EXPECT_EQ(engine_.WaitForRequest().deadline, absl::InfiniteFuture());
  context.TryCancel();
}

TEST_F(OverloadTest, ARequestWhoseDeadlinePassesBeforeItsTurnIsNeverRead) {
  absl::Notification go_on;
  engine_.before_submit = [&] { go_on.WaitForNotification(); };
  CallBurst busy(*stub_, Request(), /*num_calls=*/2);  // one for each worker
  ASSERT_TRUE(Comes([&] { return engine_.num_submits == 2; }));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(2)));
  const auto reader = stub_->Generate(&context, Request());
  ASSERT_TRUE(Comes([&] { return engine_.num_queued() == 3; }));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(Comes([&] { return engine_.num_queued() == 2; })) << "the server knows the deadline too";
  go_on.Notify();
  for (size_t i = 0; i < 2; ++i) engine_.Complete(engine_.WaitForRequest(i).ticket, 0);
  busy.WaitForAll();
  EXPECT_TRUE(calls_->WaitUntilIdle(kSoon));
  EXPECT_EQ(engine_.num_requests(), 2);
}

TEST_F(OverloadTest, ABurstOfAThousandCallsCostsOnlyThePlacesOfTheQueue) {
  constexpr int kNumCalls = 1000, kNumPlaces = 50;
  absl::Notification go_on;
  engine_.max_queued = kNumPlaces;
  engine_.before_submit = [&] { go_on.WaitForNotification(); };
  CallBurst burst(*stub_, Request(std::string(500, 'x')), kNumCalls);
  ASSERT_TRUE(burst.WaitForReason("QUEUE_FULL", kNumCalls - kNumPlaces));
  EXPECT_EQ(engine_.num_queued(), kNumPlaces);
  EXPECT_EQ(engine_.num_requests(), 0) << "the refusals did not wait for the requests that were taken";
  go_on.Notify();
  for (size_t i = 0; i < kNumPlaces; ++i) engine_.Complete(engine_.WaitForRequest(i).ticket, 0);
  burst.WaitForAll();
  EXPECT_EQ(burst.num("OK"), kNumPlaces);
  EXPECT_EQ(burst.num("QUEUE_FULL"), kNumCalls - kNumPlaces);
  EXPECT_EQ(engine_.num_requests(), kNumPlaces);
  // The engine's answer may come before the worker has let go of the place.
  EXPECT_TRUE(Comes([&] { return engine_.num_queued() == 0; }));
}

TEST_F(OverloadTest, ManyAbortsOfARequestReachTheEngineOnce) {
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Named("", "mine"));
  const Ticket ticket = engine_.WaitForRequest().ticket;
  for (int i = 0; i < 100; ++i) {
    grpc::ClientContext abort_context;
    v1::AbortRequest abort;
    abort.set_request_id("mine");
    v1::AbortResponse aborted;
    ASSERT_TRUE(stub_->Abort(&abort_context, abort, &aborted).ok());
    EXPECT_TRUE(aborted.aborted());
  }
  EXPECT_TRUE(engine_.WaitForAbort(ticket));
  EXPECT_EQ(engine_.num_aborts(), 1);
  engine_.Complete(ticket, 0, FinishReason::kAbort);
  v1::GenerateResponse response;
  while (reader->Read(&response)) continue;
  EXPECT_TRUE(reader->Finish().ok());
}

}  // namespace
}  // namespace foretoken::verifier
