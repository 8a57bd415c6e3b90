// SPDX-License-Identifier: Apache-2.0
// The ends of calls: cancellation, deadline, Abort, shutdown, and clients that do not read. If this test fails, an
// ended call keeps its place, memory or request id, or a client gets a wrong final status.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/verifier_service/api/generation_service_fixture.h"

namespace foretoken::verifier {
namespace {

using ::testing::HasSubstr;

TEST_F(GenerationServiceTest, CancellingACallAbortsItsRequest) {
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Request());
  const Ticket ticket = engine_.WaitForRequest().ticket;
  context.TryCancel();
  EXPECT_TRUE(engine_.WaitForAbort(ticket));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(calls_->WaitUntilIdle(kSoon));
  engine_.Say(ticket, 0, "too late");
}

TEST_F(GenerationServiceTest, ADeadlineAbortsItsRequest) {
  grpc::ClientContext context;
  // Two seconds are enough for the call to reach the engine.
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
  const auto reader = stub_->Generate(&context, Request());
  EXPECT_TRUE(engine_.WaitForAbort(engine_.WaitForRequest().ticket));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(calls_->WaitUntilIdle(kSoon));
}

TEST_F(GenerationServiceTest, CallsCancelledAtAnyPointLeaveNothingBehind) {
  for (int i = 0; i < 200; ++i) {
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, Request());
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(i * 10));
    context.TryCancel();
    reader->Finish();
  }
  EXPECT_TRUE(calls_->WaitUntilIdle(kSoon));
}

class UnreadServiceTest : public GenerationServiceTest {
 protected:
  UnreadServiceTest() : GenerationServiceTest(16, {.max_bytes = int64_t{8} << 20, .max_write_time = absl::Hours(1)}) {}
};

TEST_F(UnreadServiceTest, BeyondTheLimitTheCallWithTheMostBytesEnds) {
  grpc::ClientContext contexts[2];
  const auto greedy = stub_->Generate(&contexts[0], Request());
  const Ticket greedy_ticket = engine_.WaitForRequest(0).ticket;
  const auto modest = stub_->Generate(&contexts[1], Request());
  const Ticket modest_ticket = engine_.WaitForRequest(1).ticket;
  SayBlocks(modest_ticket, 10);
  SayBlocks(greedy_ticket, 200);
  EXPECT_TRUE(engine_.WaitForAbort(greedy_ticket));
  EXPECT_FALSE(engine_.was_aborted(modest_ticket));
  v1::GenerateResponse response;
  while (greedy->Read(&response)) continue;
  const grpc::Status status = greedy->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("the output is not read: all calls together have over 8388608 bytes"));

  engine_.Complete(modest_ticket, 0);
  size_t num_bytes = 0;
  while (modest->Read(&response)) num_bytes += response.text().size();
  EXPECT_TRUE(modest->Finish().ok());
  EXPECT_EQ(num_bytes, 10 * kBlockBytes);
  EXPECT_TRUE(calls_->WaitUntilIdle(kSoon));
  EXPECT_EQ(calls_->unread().totals().num_calls, 0);
  EXPECT_EQ(calls_->unread().totals().num_bytes, 0);
}

TEST_F(UnreadServiceTest, AFinishedCallThatIsNotReadIsCounted) {
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Request());
  const Ticket ticket = engine_.WaitForRequest().ticket;
  SayBlocks(ticket, 50);
  engine_.Complete(ticket, 0);
  const auto is_counted = [&] { return calls_->unread().totals().num_bytes > 25 * kBlockBytes; };
  for (const absl::Time end = absl::Now() + kSoon; !is_counted() && absl::Now() < end;) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_TRUE(is_counted());
  EXPECT_EQ(calls_->unread().totals().num_calls, 1);
  context.TryCancel();
  EXPECT_TRUE(calls_->WaitUntilIdle(kSoon));
  EXPECT_EQ(calls_->unread().totals().num_bytes, 0);
}

class StalledServiceTest : public GenerationServiceTest {
 protected:
  StalledServiceTest() : GenerationServiceTest(16, {.max_write_time = absl::Milliseconds(200)}) {}
};

TEST_F(StalledServiceTest, ACallWhoseClientTakesNothingEnds) {
  Bystander bystander(*stub_, engine_, Request());
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Request());
  const Ticket ticket = engine_.WaitForRequest(1).ticket;
  SayBlocks(ticket, 200);
  engine_.Complete(ticket, 0);
  EXPECT_TRUE(engine_.WaitForAbort(ticket));
  v1::GenerateResponse response;
  while (reader->Read(&response)) continue;
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "OUTPUT_NOT_READ: the output is not read: a message was not taken within 200ms");
  bystander.ExpectToGoOn();
  bystander.ExpectToEnd();
  EXPECT_TRUE(calls_->WaitUntilIdle(kSoon));
}

TEST_F(GenerationServiceTest, AbortFindsTheTenantsOwnRequestsOnly) {
  Bystander bystander(*stub_, engine_, Named("a", "known"));
  const Ticket ticket = engine_.WaitForRequest().ticket;
  for (const auto& [tenant, id, code, aborted] : {std::tuple("b", "known", grpc::OK, false),
                                                  {"", "known", grpc::OK, false},
                                                  {"a", "other", grpc::OK, false},
                                                  {"a", "", grpc::INVALID_ARGUMENT, false},
                                                  {"a", "known", grpc::OK, true}}) {
    EXPECT_FALSE(engine_.was_aborted(ticket)) << tenant << " " << id;
    grpc::ClientContext context;
    v1::AbortRequest request;
    request.set_tenant(tenant);
    request.set_request_id(id);
    v1::AbortResponse response;
    EXPECT_EQ(stub_->Abort(&context, request, &response).error_code(), code) << tenant << " " << id;
    EXPECT_EQ(response.aborted(), aborted) << tenant << " " << id;
  }
  EXPECT_TRUE(Comes([&] { return engine_.was_aborted(ticket); }));
  bystander.ExpectToEnd();
}

TEST_F(GenerationServiceTest, ARequestThatIsAbortedBeforeItIsParsedNeverReachesTheEngine) {
  absl::Notification release;
  engine_.before_submit = [&] { release.WaitForNotification(); };
  grpc::ClientContext contexts[4];
  const auto first = stub_->Generate(&contexts[0], Request());
  const auto second = stub_->Generate(&contexts[1], Request());
  ASSERT_TRUE(Comes([&] { return engine_.num_submits == 2; }));  // all workers are busy
  v1::GenerateRequest by_message = Named("a", "waits");
  by_message.mutable_sampling()->set_n(2);
  const auto waiting = stub_->Generate(&contexts[2], by_message);
  contexts[3].AddMetadata("x-request-id", "waits");
  contexts[3].AddMetadata("x-foretoken-tenant", "a");
  const auto waiting_too = stub_->Generate(&contexts[3], Request());
  ASSERT_TRUE(Comes([&] { return engine_.num_queued() == 4; }));
  for (const auto& [tenant, aborted] : {std::pair("b", false), {"a", true}}) {
    grpc::ClientContext context;
    v1::AbortRequest abort;
    abort.set_tenant(tenant);
    abort.set_request_id("waits");
    v1::AbortResponse response;
    EXPECT_TRUE(stub_->Abort(&context, abort, &response).ok());
    EXPECT_EQ(response.aborted(), aborted) << tenant;
  }
  release.Notify();
  for (auto& [reader, num_samples] : {std::pair(waiting.get(), 2), {waiting_too.get(), 1}}) {
    v1::GenerateResponse response;
    for (int i = 0; i < num_samples; ++i) {
      ASSERT_TRUE(reader->Read(&response));
      EXPECT_EQ(response.completion().finish_reason(), v1::FINISH_REASON_ABORT);
      EXPECT_EQ(response.sample_index(), i);
      EXPECT_GT(response.completion().usage().prompt_tokens(), 0);
    }
    EXPECT_FALSE(reader->Read(&response));
    EXPECT_TRUE(reader->Finish().ok());
  }
  EXPECT_EQ(engine_.num_submits, 2);
  EXPECT_EQ(engine_.num_aborts(), 0);
  calls_->FailAll(absl::UnavailableError("the test ends"));
}

TEST_F(GenerationServiceTest, TenantsTakeTurnsToBeParsed) {
  absl::Notification release, end;
  std::atomic<int> num_begun = 0;
  // One worker stands still, so that the other one's order is the order of the turns.
  engine_.before_submit = [&] { (num_begun++ == 0 ? end : release).WaitForNotification(); };
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  const auto send = [&](const std::string& tenant) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub_->Generate(contexts.back().get(), Named(tenant, absl::StrCat(contexts.size()))));
    ASSERT_TRUE(Comes([&] { return engine_.num_queued() == std::ssize(readers); }));
  };
  for (int i = 0; i < 7; ++i) send("flood");  // two of them take the workers
  send("other");
  release.Notify();
  const bool have_come = Comes([&] { return engine_.num_requests() == 7; });
  end.Notify();
  ASSERT_TRUE(have_come && Comes([&] { return engine_.num_requests() == 8; }));
  size_t turn = 0;
  while (engine_.WaitForRequest(turn).tenant != "other") ++turn;
  // The worker's own request and one of the flood may come before it.
  EXPECT_LE(turn, 2) << "the other tenant waited for the whole flood";
  calls_->FailAll(absl::UnavailableError("the test ends"));
}

// A call that waits for an id in use is aborted, and hears of it. On a slow machine the abort may come after the call
// has given up; then the next call waits.
void AbortAWaitingCall(v1::GenerationService::Stub& stub, const ScriptedEngine& engine) {
  grpc::Status end(grpc::StatusCode::ALREADY_EXISTS, "");
  while (end.error_code() == grpc::StatusCode::ALREADY_EXISTS) {
    grpc::ClientContext context, abort_context;
    const auto waiting = stub.Generate(&context, Named("a", "same"));
    ASSERT_TRUE(Comes([&] { return engine.num_queued() == 1; }));
    v1::AbortRequest abort;
    abort.set_tenant("a");
    abort.set_request_id("same");
    v1::AbortResponse aborted;
    EXPECT_TRUE(stub.Abort(&abort_context, abort, &aborted).ok());
    v1::GenerateResponse response;
    if (waiting->Read(&response)) {
      EXPECT_EQ(response.completion().finish_reason(), v1::FINISH_REASON_ABORT);
    }
    EXPECT_FALSE(waiting->Read(&response));
    end = waiting->Finish();
  }
  EXPECT_TRUE(end.ok()) << end.error_message();
}

TEST_F(GenerationServiceTest, ARequestThatIsAbortedWhileItWaitsForItsIdNeverReachesTheEngine) {
  Bystander bystander(*stub_, engine_, Named("a", "same"));
  engine_.before_submit = [] { ADD_FAILURE() << "the aborted request was submitted"; };
  AbortAWaitingCall(*stub_, engine_);
  bystander.ExpectToEnd();
}

// The call still waits for its next try when its status begins to linger, so two alarms are set at one time.
TEST_F(GenerationServiceTest, ARequestThatIsAbortedWhileItWaitsForItsIdLingersOnADrainingServer) {
  Bystander bystander(*stub_, engine_, Named("a", "same"));
  calls_->BeginDraining();
  for (int i = 0; i < 8; ++i) AbortAWaitingCall(*stub_, engine_);
  bystander.ExpectToEnd();
}

// A status that lingers belongs to a call that has its whole answer.
TEST_F(GenerationServiceTest, ACallThatLingersIsAnsweredAndItsIdIsFree) {
  calls_->BeginDraining();
  grpc::ClientContext contexts[2];
  const auto first = stub_->Generate(&contexts[0], Named("a", "same"));
  engine_.Complete(engine_.WaitForRequest(0).ticket, 0);
  v1::GenerateResponse response;
  ASSERT_TRUE(first->Read(&response));
  const auto second = stub_->Generate(&contexts[1], Named("a", "same"));
  const Ticket ticket = engine_.WaitForRequest(1).ticket;
  contexts[0].TryCancel();
  first->Finish();
  engine_.Complete(ticket, 0);
  ASSERT_TRUE(second->Read(&response));
  EXPECT_FALSE(second->Read(&response));
  EXPECT_TRUE(second->Finish().ok());
  EXPECT_TRUE(calls_->WaitUntilIdle(kSoon));
  EXPECT_EQ(ReadMetric("foretoken_rpc_calls_total,rpc=Generate,code=OK"), 2);
}

// A slow machine may need the time that is left for itself, so one answer of a few is enough.
TEST_F(GenerationServiceTest, AStatusDoesNotLingerPastTheDeadlineOfItsCall) {
  calls_->BeginDraining();
  bool is_ok = false;
  for (size_t i = 0; i < 5 && !is_ok; ++i) {
    grpc::ClientContext context;
    const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(2);
    context.set_deadline(deadline);
    const auto reader = stub_->Generate(&context, Request());
    const Ticket ticket = engine_.WaitForRequest(i).ticket;
    std::this_thread::sleep_until(deadline - std::chrono::milliseconds(150));
    engine_.Complete(ticket, 0);
    v1::GenerateResponse response;
    while (reader->Read(&response)) continue;
    is_ok = reader->Finish().ok();
  }
  EXPECT_TRUE(is_ok);
}

TEST_F(GenerationServiceTest, ARequestIdIsInUseForItsTenantAlone) {
  Bystander bystander(*stub_, engine_, Named("a", "same"));
  EXPECT_EQ(Generate(Named("a", "same")).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Named("b", "same"));
  engine_.Complete(engine_.WaitForRequest(1).ticket, 0);
  v1::GenerateResponse response;
  EXPECT_TRUE(reader->Read(&response));
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_TRUE(reader->Finish().ok());
  bystander.ExpectToEnd();
}

TEST_F(GenerationServiceTest, ARequestThatArrivesBeforeTheCancellationOfItsPredecessorGetsTheId) {
  for (size_t i = 0; i < 20; ++i) {
    grpc::ClientContext contexts[2];
    const auto given_up = stub_->Generate(&contexts[0], Named("a", "same"));
    engine_.WaitForRequest(2 * i);
    const auto next = stub_->Generate(&contexts[1], Named("a", "same"));
    contexts[0].TryCancel();
    engine_.Complete(engine_.WaitForRequest(2 * i + 1).ticket, 0);
    v1::GenerateResponse response;
    ASSERT_TRUE(next->Read(&response));
    EXPECT_FALSE(next->Read(&response));
    EXPECT_TRUE(next->Finish().ok());
    EXPECT_EQ(given_up->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
}

TEST_F(GenerationServiceTest, ARequestIdIsFreeWhenItsCallHasEnded) {
  size_t num_requests = 0;
  for (int i = 0; i < 10; ++i) {
    {
      grpc::ClientContext context;
      const auto reader = stub_->Generate(&context, Named("a", "same"));
      const Ticket ticket = engine_.WaitForRequest(num_requests++).ticket;
      engine_.Complete(ticket, 0);
      v1::GenerateResponse response;
      while (reader->Read(&response)) continue;
      const grpc::Status status = reader->Finish();
      ASSERT_TRUE(status.ok()) << status.error_message();
    }
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
    const auto reader = stub_->Generate(&context, Named("a", "same"));
    engine_.WaitForRequest(num_requests++);  // the engine never ends this request
    const grpc::Status status = reader->Finish();
    ASSERT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << status.error_message();
  }
}

TEST_F(GenerationServiceTest, TheStatusAtShutdownShowsWhetherAnythingWasGenerated) {
  grpc::ClientContext contexts[2];
  const auto begun = stub_->Generate(&contexts[0], Request());
  const Ticket begun_ticket = engine_.WaitForRequest(0).ticket;
  engine_.Say(begun_ticket, 0, "a");
  v1::GenerateResponse response;
  ASSERT_TRUE(begun->Read(&response));
  const auto waiting = stub_->Generate(&contexts[1], Request());
  const Ticket waiting_ticket = engine_.WaitForRequest(1).ticket;

  calls_->ShutDownAll();
  EXPECT_FALSE(waiting->Read(&response));
  EXPECT_EQ(waiting->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(engine_.WaitForAbort(waiting_ticket));
  EXPECT_TRUE(engine_.WaitForAbort(begun_ticket));
  engine_.Complete(begun_ticket, 0, FinishReason::kAbort);
  ASSERT_TRUE(begun->Read(&response));
  EXPECT_EQ(response.completion().finish_reason(), v1::FINISH_REASON_SHUTDOWN);
  EXPECT_FALSE(begun->Read(&response));
  EXPECT_TRUE(begun->Finish().ok());
  EXPECT_TRUE(calls_->WaitUntilIdle(kSoon));
}

TEST_F(GenerationServiceTest, AnAbortKeepsItsReasonWhenTheServerShutsDown) {
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Named("", "mine"));
  const Ticket ticket = engine_.WaitForRequest().ticket;
  engine_.Say(ticket, 0, "a");
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  grpc::ClientContext abort_context;
  v1::AbortRequest abort;
  abort.set_request_id("mine");
  v1::AbortResponse aborted;
  ASSERT_TRUE(stub_->Abort(&abort_context, abort, &aborted).ok());
  calls_->ShutDownAll();
  engine_.Complete(ticket, 0, FinishReason::kAbort);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.completion().finish_reason(), v1::FINISH_REASON_ABORT);
}

}  // namespace
}  // namespace foretoken::verifier
