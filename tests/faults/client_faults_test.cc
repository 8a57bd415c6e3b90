// SPDX-License-Identifier: Apache-2.0
// Clients that vanish, cancel or do not read. If this test fails, such a client takes room for good, or changes or
// delays the outputs of others.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "foretoken/v1/generation.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/quiet_levels.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/fakes/tcp_relay.h"

namespace foretoken {
namespace {

using testing::TcpRelay;

// Megabytes of output: more than a connection without a reader buffers.
v1::GenerateRequest HugeRequest() {
  v1::GenerateRequest request = RepetitiveRequest(1);
  request.mutable_sampling()->set_n(24);
  request.mutable_stopping()->set_max_tokens(700);
  request.mutable_output()->set_logprobs(20);
  return request;
}

class ClientFaults : public ::testing::Test {
 protected:
  ServiceProcess proposer_{"foretoken_proposer", {}};
  ServiceProcess verifier_{"foretoken_verifier",
                           {"--proposer=ngram=static:" + proposer_.address(), "--max_write_time=1s"}};
  client::GenerationClient client_ = Connect(verifier_);
};

TEST_F(ClientFaults, VanishingClientsTakeNoRoomForGood) {
  StreamLoad load(client_, {.num_streams = 2});
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier_, &proposer_});
  for (const bool is_closed : {false, true}) {  // no end of the connection arrives, or a reset
    TcpRelay relay(verifier_.address());
    auto vanishing = client::GenerationClient::Connect({.target = relay.address()}).value();
    StreamLoad lost(vanishing, {.num_streams = 4});
    ASSERT_TRUE(lost.Continues());
    relay.Freeze();
    EXPECT_TRUE(load.Continues());
    // The calls end although nobody reads: their outputs fit into buffers, or their time to be read is over.
    EXPECT_TRUE(is_closed || WaitUntil([&] { return verifier_.Metric("foretoken_samples_running") <= 2; }));
    lost.Cancel();
  }
  EXPECT_TRUE(load.AcceptsMore()) << "the other client goes on";
  load.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();
}

TEST_F(ClientFaults, CancelledCallsLeaveNothingBehind) {
  constexpr int kNumCallers = 8, kNumCancelled = 200;
  constexpr int64_t kMaxBytesEach = 20'000;
  const auto cancel_calls = [&] {
    StreamLoad load(client_, {.num_streams = 2});
    ASSERT_TRUE(load.AcceptsMore());
    std::atomic<int> next_call = 0;
    std::vector<std::thread> callers;
    for (int i = 0; i < kNumCallers; ++i) {
      callers.emplace_back([&] {
        for (int call; (call = next_call.fetch_add(1)) < kNumCancelled;) {
          int num_left = call % 5;  // messages until the client cancels
          const absl::Status status =
              client_.Generate(RepetitiveRequest(call), [&](const v1::GenerateResponse&) { return num_left-- > 0; });
          EXPECT_TRUE(status.ok()) << status;
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    load.ExpectTheTokensOfNoSpeculation();
  };
  cancel_calls();  // fills the caches
  const QuietLevels levels({&verifier_, &proposer_});
  cancel_calls();
  levels.ExpectBack(kNumCancelled * kMaxBytesEach);
}

TEST_F(ClientFaults, AClientThatDoesNotReadIsEndedByName) {
  StreamLoad load(client_, {.num_streams = 1});
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier_, &proposer_});
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // keeps windows small, so that most of the output waits at the server
  const auto stub = v1::GenerationService::NewStub(
      grpc::CreateCustomChannel(verifier_.address(), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, HugeRequest());
  EXPECT_TRUE(WaitUntil([&] {
    return verifier_.Metrics()["foretoken_refusals_total{reason=\"output_not_read\",rpc=\"Generate\"}"] == 1;
  }));
  v1::GenerateResponse response;
  while (reader->Read(&response)) continue;
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(load.Continues());
  load.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();
}

TEST(WaitingRequests, KeepTheirTokensAndNotTheirBytes) {
  constexpr int kNumWaiting = 24;
  constexpr size_t kFieldBytes = 1'000'000;
  ServiceProcess verifier("foretoken_verifier", {"--max_running_samples=1"});
  const auto stub =
      v1::GenerationService::NewStub(grpc::CreateChannel(verifier.address(), grpc::InsecureChannelCredentials()));
  v1::GenerateRequest request = RepetitiveRequest(0);
  request.mutable_sampling()->set_n(40);  // run one after the other, so no request ends during the test
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
  };
  std::vector<std::unique_ptr<Call>> calls;
  const auto add = [&] {
    calls.push_back(std::make_unique<Call>());
    calls.back()->reader = stub->Generate(&calls.back()->context, request);
  };
  add();
  ASSERT_TRUE(WaitUntil([&] { return verifier.Metric("foretoken_samples_running") == 1; }));
  const int64_t memory = verifier.process().MemoryBytes();
  for (int i = 0; i < 3; ++i) {
    v1::ChatMessage& message = *request.mutable_chat()->add_messages();
    message.set_role("user");
    message.set_content("Hello");
    message.set_fields_json(absl::StrCat("{\"unused\":\"", std::string(kFieldBytes, 'x'), "\"}"));  // by the template
  }
  for (int i = 0; i < kNumWaiting; ++i) {
    add();
    ASSERT_TRUE(WaitUntil([&] {
      return verifier.Metric("foretoken_requests_queued") == i + 2 &&
             verifier.Metric("foretoken_tokens_queued") < kFieldBytes / 4;
    })) << "until a request is parsed, each four of its bytes count as a token";
  }
  if (!kIsSanitized) {
    EXPECT_LT(verifier.process().MemoryBytes() - memory, 3 * kFieldBytes * kNumWaiting * 3 / 4);
  }
  for (const auto& call : calls) call->context.TryCancel();
}

}  // namespace
}  // namespace foretoken
