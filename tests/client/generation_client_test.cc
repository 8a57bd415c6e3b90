// SPDX-License-Identifier: Apache-2.0
// If these tests fail, programs with this client library hang, lose output or get the wrong error.
#include "client/generation_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/testing/fakes/fake_generation_service.h"
#include "tests/testing/fakes/tcp_relay.h"

namespace foretoken::client {
namespace {

using foretoken::testing::FakeGenerationService;
using foretoken::testing::TcpRelay;
using foretoken::v1::GenerateRequest;
using foretoken::v1::GenerateResponse;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

GenerateRequest Prompt(const std::string& text, uint32_t max_tokens) {
  GenerateRequest request;
  request.set_text(text);
  request.mutable_stopping()->set_max_tokens(max_tokens);
  return request;
}

GenerationClient ConnectTo(const FakeGenerationService& service) {
  return *GenerationClient::Connect({.target = service.target()});
}

// Writes until the client ends the call.
grpc::Status WriteForever(const GenerateRequest&, grpc::ServerContext&,
                          const std::function<bool(const GenerateResponse&)>& write) {
  GenerateResponse response;
  response.add_token_ids(7);
  while (write(response)) absl::SleepFor(absl::Milliseconds(1));
  return grpc::Status::CANCELLED;
}

TEST(GenerationClient, CollectsEverySample) {
  FakeGenerationService service;
  GenerateRequest request = Prompt("ab", 3);
  request.mutable_sampling()->set_n(2);
  const auto generation = ConnectTo(service).Generate(request);
  ASSERT_TRUE(generation.ok()) << generation.status();
  EXPECT_EQ(generation->request_id, "fake-1");
  ASSERT_EQ(generation->samples.size(), 2);
  for (const Sample& sample : generation->samples) {
    EXPECT_EQ(sample.text, "aba");
    EXPECT_THAT(sample.token_ids, ElementsAre('a', 'b', 'a'));
    EXPECT_THAT(sample.speculated, ElementsAre(false, true, false));
    EXPECT_EQ(sample.completion->usage().completion_tokens(), 3);
  }
}

// A call may wait in a server's queue for minutes.
TEST(GenerationClient, PingsASilentCallForAsLongAsItLasts) {
  FakeGenerationService service;
  absl::Notification has_ended;
  service.set_script([&](const GenerateRequest&, grpc::ServerContext&, const auto&) {
    has_ended.WaitForNotification();
    return grpc::Status::OK;
  });
  TcpRelay relay(service.target());
  GenerationClient client =
      *GenerationClient::Connect({.target = relay.address(), .call_timeout_ms = 40'000, .keepalive_ms = 200});
  std::thread host([&] {
    absl::SleepFor(absl::Seconds(5));  // more pings than gRPC sends by default; it sends at most one per second
    relay.Freeze();
  });
  EXPECT_EQ(client.Generate(Prompt("ab", 3)).status().code(), absl::StatusCode::kUnavailable);
  host.join();
  has_ended.Notify();
}

TEST(GenerationClient, ReturnsTheServersStatus) {
  FakeGenerationService service;
  const auto generation = ConnectTo(service).Generate(Prompt("", 3));
  EXPECT_EQ(generation.status(), absl::InvalidArgumentError("text: expected a prompt, got none"));
}

TEST(GenerationClient, SendsNothingToAProxyWithoutTls) {
  const FakeGenerationService service;
  setenv("http_proxy", "http://127.0.0.1:1", /*overwrite=*/1);
  EXPECT_TRUE(ConnectTo(service).GetModelInfo().ok());
  unsetenv("http_proxy");
}

TEST(GenerationClient, NamesATargetThatDoesNotAnswer) {
  std::string target;
  {
    const FakeGenerationService gone;
    target = gone.target();
  }
  const auto client = GenerationClient::Connect({.target = target, .connect_timeout_ms = 50});
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(client.status().message()), HasSubstr(target));
}

TEST(GenerationClient, EndsACallWhenTheCallbackReturnsFalse) {
  FakeGenerationService service;
  service.set_script(WriteForever);
  int num_responses = 0;
  const absl::Status status =
      ConnectTo(service).Generate(Prompt("x", 3), [&](const GenerateResponse&) { return ++num_responses < 3; });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(num_responses, 3);
}

TEST(GenerationClient, EndsARunningCallAtCancel) {
  FakeGenerationService service;
  service.set_script(WriteForever);
  GenerationClient client = ConnectTo(service);
  Cancellation cancellation;
  absl::Notification began;
  std::jthread canceller([&] {
    began.WaitForNotification();
    cancellation.Cancel();
  });
  const absl::Status status = client.Generate(
      Prompt("x", 3),
      [&](const GenerateResponse&) {
        if (!began.HasBeenNotified()) began.Notify();
        return true;
      },
      &cancellation);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(client.Generate(Prompt("x", 3), &cancellation).status().code(), absl::StatusCode::kCancelled)
      << "a later call must end, too";
}

TEST(GenerationClient, EndsACallAtItsDeadline) {
  FakeGenerationService service;
  service.set_script(WriteForever);
  auto client = GenerationClient::Connect({.target = service.target(), .call_timeout_ms = 50});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(client->Generate(Prompt("x", 3)).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(GenerationClient, CallsAnIncompleteStreamInternal) {
  FakeGenerationService service;
  service.set_script([](auto&, auto&, auto& write) {
    GenerateResponse response;
    response.add_token_ids(7);
    write(response);
    return grpc::Status::OK;
  });
  EXPECT_EQ(ConnectTo(service).Generate(Prompt("x", 3)).status(),
            absl::InternalError("the server ended the stream without completing sample 0"));
}

TEST(GenerationClient, CallsACutOffOutputAnError) {
  FakeGenerationService service;
  service.set_script(testing::CutOff(foretoken::v1::FINISH_REASON_SHUTDOWN));
  EXPECT_EQ(ConnectTo(service).Generate(Prompt("x", 3)).status(),
            absl::UnavailableError("the server shut down before the end of the output"));
  service.set_script(testing::CutOff(foretoken::v1::FINISH_REASON_ABORT));
  EXPECT_EQ(ConnectTo(service).Generate(Prompt("x", 3)).status(),
            absl::AbortedError("the request was aborted before the end of the output"));
}

TEST(GenerationClient, CallsOnlyItsOwnCancelCancelled) {
  FakeGenerationService service;
  service.set_script([](auto&, auto&, auto&) { return grpc::Status(grpc::StatusCode::CANCELLED, "gone"); });
  Cancellation cancellation;
  EXPECT_EQ(ConnectTo(service).Generate(Prompt("x", 3), &cancellation).status(),
            absl::UnavailableError("the server cancelled the call: gone"));
  EXPECT_EQ(ConnectTo(service).Generate(Prompt("x", 3)).status().code(), absl::StatusCode::kUnavailable);
}

TEST(GenerationClient, AbortsTokenizesDetokenizesAndDescribes) {
  FakeGenerationService service;
  GenerationClient client = ConnectTo(service);
  EXPECT_TRUE(*client.Abort("running"));
  EXPECT_FALSE(*client.Abort("unknown"));
  EXPECT_FALSE(*client.Abort("running", "another tenant"));

  foretoken::v1::TokenizeRequest text;
  text.set_text("ab");
  EXPECT_THAT(client.Tokenize(text)->token_ids(), ElementsAre('a', 'b'));

  foretoken::v1::DetokenizeRequest ids;
  ids.add_token_ids('a');
  EXPECT_EQ(client.Detokenize(ids)->text(), "a");
  ids.add_token_ids(1000);
  EXPECT_EQ(client.Detokenize(ids).status().code(), absl::StatusCode::kInvalidArgument);

  EXPECT_EQ(client.GetModelInfo()->model(), "fake");
}

}  // namespace
}  // namespace foretoken::client
