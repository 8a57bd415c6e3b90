// SPDX-License-Identifier: Apache-2.0
// Calls that wait for a worker: Tokenize and Detokenize beside Generate, and calls that are cancelled while they wait.
// If this test fails, lookups delay Generate calls, cancelled calls keep places that others need, or answers that
// nobody reads fill the server's memory.
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/verifier_service/api/generation_service_fixture.h"

namespace foretoken::verifier {
namespace {

// Runs Generate or Tokenize in the background until it is cancelled.
class CallInTheBackground {
 public:
  explicit CallInTheBackground(const std::function<grpc::Status(grpc::ClientContext&)>& call)
      : thread_([this, call] { status_ = call(context_); }) {}
  ~CallInTheBackground() {
    if (thread_.joinable()) Cancel();
  }
  grpc::Status Cancel() {
    context_.TryCancel();
    return Wait();
  }
  grpc::Status Wait() {
    thread_.join();
    return status_;
  }

 private:
  grpc::ClientContext context_;
  grpc::Status status_;
  std::thread thread_;
};

TEST_F(GenerationServiceTest, ACallCancelledBeforeItsTurnFreesItsPlaceAndIsNeverRead) {
  constexpr int kNumWorkers = 2, kNumWaiting = 6;
  absl::Notification go_on;
  engine_.before_submit = [&] { go_on.WaitForNotification(); };
  const auto generate = [&](grpc::ClientContext& context) {
    const auto reader = stub_->Generate(&context, Request());
    v1::GenerateResponse response;
    while (reader->Read(&response)) continue;
    return reader->Finish();
  };
  std::vector<std::unique_ptr<CallInTheBackground>> calls;
  for (int i = 0; i < kNumWorkers + kNumWaiting; ++i) {
    calls.push_back(std::make_unique<CallInTheBackground>(generate));
    ASSERT_TRUE(Comes([&] { return engine_.num_queued() == i + 1; }));
    // A place is taken before the work is queued. The first two calls must be at work before another one comes.
    ASSERT_TRUE(Comes([&] { return engine_.num_submits == std::min(i + 1, kNumWorkers); }));
  }
  for (int i = 0; i < kNumWaiting; ++i) {
    EXPECT_EQ(calls.back()->Cancel().error_code(), grpc::StatusCode::CANCELLED);
    calls.pop_back();
  }
  EXPECT_TRUE(Comes([&] { return engine_.num_queued() == kNumWorkers; })) << "both workers are busy";
  go_on.Notify();
  engine_.WaitForRequest(kNumWorkers - 1);
  for (const auto& call : calls) call->Cancel();
  calls.clear();
  EXPECT_TRUE(calls_->WaitUntilIdle(kSoon));
  EXPECT_EQ(engine_.num_requests(), kNumWorkers);
  EXPECT_TRUE(Comes([&] { return engine_.num_queued() == 0; }));
}

TEST_F(GenerationServiceTest, LookupsAndGenerateDoNotTakeEachOthersPlaces) {
  engine_.max_queued = 0;
  grpc::ClientContext context;
  v1::TokenizeRequest request;
  request.set_text("def");
  v1::TokenizeResponse response;
  EXPECT_TRUE(stub_->Tokenize(&context, request, &response).ok());
}

TEST_F(GenerationServiceTest, CancelledLookupsTakeNoTime) {
  constexpr int kMaxLookups = 16;
  v1::TokenizeRequest long_request, short_request;
  for (int i = 0; i < 800'000; ++i) long_request.mutable_text()->append("word ");
  short_request.set_text("def");
  const auto tokenize = [&](grpc::ClientContext& context, const v1::TokenizeRequest& request) {
    v1::TokenizeResponse response;
    return stub_->Tokenize(&context, request, &response);
  };
  const absl::Time one_began = absl::Now();
  grpc::ClientContext context;
  tokenize(context, long_request);
  const absl::Duration one_takes = absl::Now() - one_began;
  std::atomic<int> num_refused = 0;
  std::vector<std::unique_ptr<CallInTheBackground>> calls;
  for (int i = 0; i < kMaxLookups + 1; ++i) {
    calls.push_back(std::make_unique<CallInTheBackground>([&](grpc::ClientContext& call_context) {
      const grpc::Status status = tokenize(call_context, long_request);
      if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) ++num_refused;
      return status;
    }));
  }
  ASSERT_TRUE(Comes([&] { return num_refused > 0; })) << "the test proves nothing: the lookups were never full";
  const absl::Time cancelled = absl::Now();
  calls.clear();
  ASSERT_TRUE(Comes([&] {
    grpc::ClientContext short_context;
    return tokenize(short_context, short_request).ok();
  }));
  EXPECT_LT(absl::Now() - cancelled, kMaxLookups / 2 * one_takes) << "the time to tokenize half of the texts";
}

// A Tokenize call whose client does not read the answer.
class UnreadLookup {
 public:
  UnreadLookup(const std::shared_ptr<grpc::Channel>& channel, int num_words) : stub_(channel) {
    v1::TokenizeRequest request;
    for (int i = 0; i < num_words; ++i) request.mutable_text()->append("word ");
    const grpc::Slice bytes(request.SerializeAsString());
    context_.set_deadline(absl::ToChronoTime(absl::Now() + absl::Minutes(5)));  // longer than any test waits
    call_ = stub_.PrepareCall(&context_, "/foretoken.v1.GenerationService/Tokenize", &queue_);
    call_->StartCall(this);
    Wait();
    call_->WriteLast(grpc::ByteBuffer(&bytes, 1), {}, this);
    Wait();
  }
  ~UnreadLookup() { context_.TryCancel(); }
  // After the server has ended the call. What arrived of the answer must be read before the status.
  grpc::Status Finish() {
    grpc::ByteBuffer part;
    call_->Read(&part, this);
    Wait();
    grpc::Status status;
    call_->Finish(&status, this);
    Wait();
    return status;
  }

 private:
  void Wait() {
    void* tag;
    bool ok;
    queue_.Next(&tag, &ok);
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

// About ten bytes of an answer for each word, and more than a connection without a reader buffers.
constexpr int kManyWords = 100'000;

class SlowReaders : public GenerationServiceTest {
 protected:
  explicit SlowReaders(UnreadLimits unread = {.max_write_time = absl::Milliseconds(400)})
      : GenerationServiceTest(/*max_lookups=*/1, unread) {}

  grpc::Status TokenizeOneWord() {
    grpc::ClientContext context;
    v1::TokenizeRequest request;
    request.set_text("def");
    v1::TokenizeResponse response;
    return stub_->Tokenize(&context, request, &response);
  }
};

TEST_F(SlowReaders, OfALookupAreEndedByName) {
  UnreadLookup lookup(channel_, kManyWords);
  ASSERT_TRUE(Comes([&] { return calls_->unread().totals().num_bytes > kManyWords; }));
  EXPECT_TRUE(TokenizeOneWord().ok()) << "the answer has no place";
  EXPECT_TRUE(Comes([&] { return calls_->unread().totals().num_calls == 0; }));
  const grpc::Status status = lookup.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "OUTPUT_NOT_READ: the output is not read: a message was not taken within 400ms");
}

class ManySlowReaders : public SlowReaders {
 protected:
  ManySlowReaders() : SlowReaders({.max_bytes = 2'000'000, .max_write_time = absl::Hours(1)}) {}
};

TEST_F(ManySlowReaders, AreEndedWhenAllAnswersTogetherAreTooLarge) {
  UnreadLookup first(channel_, kManyWords);
  ASSERT_TRUE(Comes([&] { return calls_->unread().totals().num_calls == 1; }));
  UnreadLookup second(channel_, 3 * kManyWords);
  const grpc::Status status = second.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr("all calls together have over 2000000 bytes"));
  EXPECT_TRUE(Comes([&] { return calls_->unread().totals().num_calls == 1; })) << "the smaller answer stays";
}

class FewLookups : public GenerationServiceTest {
 protected:
  FewLookups() : GenerationServiceTest(/*max_lookups=*/0) {}
};

TEST_F(FewLookups, AreRefusedWhileGenerateIsServed) {
  grpc::ClientContext context;
  v1::TokenizeRequest request;
  request.set_text("def");
  v1::TokenizeResponse response;
  EXPECT_EQ(stub_->Tokenize(&context, request, &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  Bystander bystander(*stub_, engine_, Request());
  bystander.ExpectToGoOn();
  bystander.ExpectToEnd();
}

}  // namespace
}  // namespace foretoken::verifier
