// SPDX-License-Identifier: Apache-2.0
// The server's bootstrap. If this test fails, health checks lie, a shutdown loses calls, or a compressed message takes
// all memory.
#include "common/rpc/server.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/termination_signals.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/testing/health.h"
#include "tests/testing/raw_http2.h"
#include "tests/testing/test_authority.h"
#include "tests/testing/unary_call.h"

namespace foretoken::rpc {
namespace {

using testing::CheckHealth;
using ::testing::HasSubstr;
using testing::Health;
using testing::Http2Frame;
using testing::Http2Type;
using testing::RawHttp2;

std::unique_ptr<Server> StartServer(absl::Duration drain_grace = absl::Seconds(1)) {
  return *Server::Start({.listen_address = "127.0.0.1:0", .service_names = {"named"}, .drain_grace = drain_grace}, {});
}

TEST(Server, TakesAFreePort) {
  const std::unique_ptr<Server> a = StartServer();
  const std::unique_ptr<Server> b = StartServer();
  EXPECT_GT(a->port(), 0);
  EXPECT_GT(b->port(), 0);
  EXPECT_NE(a->port(), b->port());
}

TEST(Server, NamesAnAddressThatCannotBeBound) {
  const std::unique_ptr<Server> first = StartServer();
  const std::string address = absl::StrCat("127.0.0.1:", first->port());
  const absl::Status status = Server::Start({.listen_address = address}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.ToString(), HasSubstr(address));
}

TEST(Server, RefusesAnAddressWithoutAPort) {
  const absl::Status status = Server::Start({.listen_address = "localhost"}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("localhost"));
}

// A service tries its ports and files, and then loads its model for minutes.
TEST(Server, StartsWithTheFilesThatItHasTried) {
  const testing::TestAuthority authority;
  const testing::MountedCertificate mounted(authority, {.names = {"DNS:localhost"}});
  const ServerOptions options = {.listen_address = "127.0.0.1:0",
                                 .security = {.tls = {.certificate = mounted.certificate(), .key = mounted.key()}}};
  ASSERT_EQ(Server::Try(options), absl::OkStatus());
  std::ofstream(mounted.key()) << "";
  const absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options, {});
  ASSERT_EQ(server.status(), absl::OkStatus());
  EXPECT_NE(testing::ShownCertificate(absl::StrCat("127.0.0.1:", (*server)->port())), "");
}

TEST(Server, ASecondPortAnswersHealthChecksInStep) {
  const std::unique_ptr<Server> server =
      Server::Start({.listen_address = "127.0.0.1:0", .security = {.health_address = "127.0.0.1:0"}}, {}).value();
  ASSERT_NE(server->health_port(), server->port());
  const auto channel =
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", server->health_port()), grpc::InsecureChannelCredentials());
  EXPECT_EQ(CheckHealth(channel), Health::kNotServing);
  server->SetServing(true);
  EXPECT_EQ(CheckHealth(channel), Health::kServing);
  server->Drain([&] {
    server->SetServing(true);
    EXPECT_EQ(CheckHealth(channel), Health::kNotServing) << "from the beginning of the drain on";
  });
}

TEST(Server, ThePortForHealthChecksTakesSmallMessagesOnly) {
  const std::unique_ptr<Server> server =
      Server::Start({.listen_address = "127.0.0.1:0", .security = {.health_address = "127.0.0.1:0"}}, {}).value();
  const auto channel =
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", server->health_port()), grpc::InsecureChannelCredentials());
  // A service's name of so many bytes.
  const auto check = [&](size_t num_bytes) {
    const std::string length = {static_cast<char>(0x80 | (num_bytes & 0x7f)), static_cast<char>(num_bytes >> 7)};
    return testing::CallWithBytes(channel, "/grpc.health.v1.Health/Check",
                                  absl::StrCat("\x0a", length, std::string(num_bytes, 'x')))
        .status.error_code();
  };
  EXPECT_EQ(check(1021), grpc::StatusCode::INVALID_ARGUMENT) << "gRPC knows no names of this length";
  EXPECT_EQ(check(1022), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

int NumThreads() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word && word != "Threads:") continue;
  int num_threads = 0;
  status >> num_threads;
  return num_threads;
}

// gRPC's own reflection has a thread for each of its calls.
TEST(Server, OpenReflectionCallsDoNotTakeAllThreads) {
  constexpr int kNumCalls = 100, kMaxNewThreads = 40;
  const std::unique_ptr<Server> server = StartServer();
  const auto channel =
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", server->port()), grpc::InsecureChannelCredentials());
  EXPECT_EQ(CheckHealth(channel), Health::kNotServing);
  const int num_before = NumThreads();
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::GenericClientAsyncReaderWriter>> calls;
  void* tag = nullptr;
  bool ok = false;
  for (int i = 0; i < kNumCalls; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    calls.push_back(stub.PrepareCall(contexts.back().get(),
                                     "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue));
    calls.back()->StartCall(nullptr);
    ASSERT_TRUE(queue.Next(&tag, &ok));
  }
  EXPECT_EQ(CheckHealth(channel), Health::kNotServing);
  EXPECT_LE(NumThreads(), num_before + kMaxNewThreads);
  grpc::Status status;
  for (int i = 0; i < kNumCalls; ++i) {
    contexts[i]->TryCancel();
    calls[i]->Finish(&status, nullptr);
    ASSERT_TRUE(queue.Next(&tag, &ok));
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) continue;
}

TEST(Server, LetsIdleClientsPingAtTheirInterval) {
  const std::unique_ptr<Server> server =
      Server::Start({.listen_address = "127.0.0.1:0", .min_ping_interval = absl::Milliseconds(100)}, {}).value();
  RawHttp2 client(absl::StrCat("127.0.0.1:", server->port()));
  client.Greet();
  for (int i = 0; i < 6; ++i) {
    client.Send({{.type = Http2Type::kPing, .payload = "12345678"}});
    const std::vector<Http2Frame> frames = client.ReadUntilClosed(absl::Milliseconds(200));
    EXPECT_TRUE(Has(frames, Http2Type::kPing)) << "ping " << i;
    EXPECT_FALSE(Has(frames, Http2Type::kGoAway)) << "ping " << i;
  }
  EXPECT_FALSE(client.is_closed());
}

// Each client begins a message and does not end it.
TEST(Server, EndsConnectionsThatTakeMoreThanItsMemory) {
  constexpr int kNumClients = 300, kPartBytes = 15'000, kNumParts = 4;
  const std::unique_ptr<Server> server =
      Server::Start({.listen_address = "127.0.0.1:0", .max_memory_bytes = 8'000'000}, {}).value();
  const std::string address = absl::StrCat("127.0.0.1:", server->port());
  {
    std::deque<RawHttp2> clients;
    for (int i = 0; i < kNumClients; ++i) {
      RawHttp2& client = clients.emplace_back(address);
      client.Greet();
      client.Send(testing::RequestHeaders(1, "/grpc.health.v1.Health/Check"));
      const std::string length("\0\0\x20\0\0", 5);  // two megabytes follow
      client.Send({{.type = Http2Type::kData, .stream_id = 1, .payload = length}});
      const Http2Frame part = {.type = Http2Type::kData, .stream_id = 1, .payload = std::string(kPartBytes, 'x')};
      client.Send(std::vector<Http2Frame>(kNumParts, part));
    }
    absl::SleepFor(absl::Seconds(1));
    EXPECT_TRUE(std::ranges::any_of(clients, [](RawHttp2& client) {
      return Has(client.ReadUntilClosed(absl::ZeroDuration()), Http2Type::kGoAway, "Buffers full");
    }));
  }
  EXPECT_EQ(CheckHealth(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())), Health::kNotServing)
      << "afterwards";
}

TEST(Server, IsHealthyOnlyWhileServing) {
  const std::unique_ptr<Server> server = StartServer();
  const auto channel =
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", server->port()), grpc::InsecureChannelCredentials());
  EXPECT_EQ(CheckHealth(channel), Health::kNotServing);
  server->SetServing(true);
  EXPECT_EQ(CheckHealth(channel), Health::kServing);
  EXPECT_EQ(CheckHealth(channel, "named"), Health::kServing);
  EXPECT_EQ(CheckHealth(channel, "other"), Health::kUnreachable);
  server->Drain([&] {
    Health health = CheckHealth(channel);
    while (health == Health::kNotServing) health = CheckHealth(channel);  // until the client has been sent elsewhere
    EXPECT_EQ(health, Health::kUnreachable) << "while calls may still run";
  });
  EXPECT_EQ(CheckHealth(channel), Health::kUnreachable);
}

// Else a probe with a misspelt name would pass once somebody else has watched it, and every name would be kept.
TEST(Server, ANameThatSomebodyWatchesIsNoService) {
  const std::unique_ptr<Server> server = StartServer();
  const auto channel =
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", server->port()), grpc::InsecureChannelCredentials());
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  const auto watch = stub.PrepareCall(&context, "/grpc.health.v1.Health/Watch", &queue);
  void* tag = nullptr;
  bool ok = false;
  watch->StartCall(nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  const grpc::Slice name("\x0a\x05other");  // HealthCheckRequest.service
  watch->Write(grpc::ByteBuffer(&name, 1), nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  grpc::ByteBuffer status;
  watch->Read(&status, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok) << "SERVICE_UNKNOWN";
  server->SetServing(true);
  EXPECT_EQ(CheckHealth(channel, "named"), Health::kServing);
  EXPECT_EQ(CheckHealth(channel, "other"), Health::kUnreachable);
  context.TryCancel();
  grpc::Status end;
  watch->Finish(&end, nullptr);
  queue.Next(&tag, &ok);
}

TEST(Server, AsksForANewConnectionAndLetsCallsGoOn) {
  const std::unique_ptr<Server> server =
      Server::Start({.listen_address = "127.0.0.1:0", .max_connection_age = absl::Milliseconds(500)}, {}).value();
  const auto channel =
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", server->port()), grpc::InsecureChannelCredentials());
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  const auto call =
      stub.PrepareCall(&context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  const auto ask = [&] {
    const grpc::Slice list_services(std::string("\x3a\x00", 2));
    grpc::ByteBuffer response;
    call->Write(grpc::ByteBuffer(&list_services, 1), nullptr);
    EXPECT_TRUE(queue.Next(&tag, &ok) && ok);
    call->Read(&response, nullptr);
    EXPECT_TRUE(queue.Next(&tag, &ok) && ok);
    return response.Length();
  };
  EXPECT_GT(ask(), 0u);
  EXPECT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY, absl::ToChronoTime(absl::Now() + absl::Seconds(30))));
  EXPECT_GT(ask(), 0u) << "on the old connection";
  EXPECT_EQ(CheckHealth(channel), Health::kNotServing) << "on a new one";
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) continue;
}

// tests/faults/message_limits_test.cc measures that nothing is inflated.
TEST(Server, RefusesCompressedMessages) {
  const std::unique_ptr<Server> server = StartServer();
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ChannelArguments arguments;
    arguments.SetCompressionAlgorithm(algorithm);
    const auto channel = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", server->port()),
                                                   grpc::InsecureChannelCredentials(), arguments);
    const grpc::Status status =
        testing::CallWithBytes(channel, "/grpc.health.v1.Health/Check", absl::StrCat("\x0a\x64", std::string(100, 'x')))
            .status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  }
}

TEST(Server, CanLiveInProcessAlone) {
  const std::unique_ptr<Server> server = *Server::Start({}, {});
  EXPECT_EQ(server->port(), 0);
  server->SetServing(true);
  EXPECT_EQ(CheckHealth(server->InProcessChannel()), Health::kServing);
}

// The tests below end their process, so each runs in a process of its own.
void ServeAndSignal(int num_signals) {
  base::BlockTerminationSignals();
  const std::unique_ptr<Server> server = StartServer();
  const auto channel =
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", server->port()), grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = grpc::GenericStub(channel).PrepareCall(&context, "/grpc.health.v1.Health/Watch", &queue);
  call->StartCall(nullptr);  // the drain waits for it
  CheckHealth(channel);      // it is there
  kill(getpid(), SIGTERM);   // blocked, so the signal waits until it is read
  server->ServeUntilSignal([&] {
    std::fprintf(stderr, "stopped admitting\n");
    for (int i = 1; i < num_signals; ++i) kill(getpid(), SIGTERM);
  });
  std::_Exit(0);
}

TEST(ServerDeathTest, DrainsAndReturnsOnASignal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ServeAndSignal(1), ::testing::ExitedWithCode(0), "stopped admitting");
}

TEST(ServerDeathTest, ASecondSignalEndsItAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ServeAndSignal(2), ::testing::ExitedWithCode(128 + SIGTERM), "stopped admitting");
}

}  // namespace
}  // namespace foretoken::rpc
