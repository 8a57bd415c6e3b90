// SPDX-License-Identifier: Apache-2.0
// Connections that no gRPC client makes. If this test fails, a stranger can take a service's memory or its connections,
// and the calls of others with them, before a call reaches the service.
#include <sys/resource.h>

#include <algorithm>
#include <deque>

#include "gtest/gtest.h"
#include "tests/faults/quiet_levels.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/raw_http2.h"
#include "tests/testing/test_authority.h"

namespace foretoken {
namespace {

using testing::Has;
using testing::Http2Frame;
using testing::Http2Type;
using testing::RawHttp2;
using testing::RequestHeaders;

constexpr char kCheck[] = "/grpc.health.v1.Health/Check", kWatch[] = "/grpc.health.v1.Health/Watch";
constexpr absl::Duration kMoment = absl::Seconds(1), kPatience = absl::Seconds(20);

// The soft limit of many shells, only lower.
const std::vector<std::string> kFewDescriptors = {"/bin/sh", "-c", "ulimit -S -n 256; exec \"$@\"", "sh"};

// Asks for the health on a new connection, with this much metadata, and returns the answer.
std::vector<Http2Frame> CheckHealth(const std::string& address, size_t num_metadata_bytes) {
  RawHttp2 client(address);
  client.Greet();
  client.Send(RequestHeaders(1, kCheck, {{"x-more", std::string(num_metadata_bytes, 'x')}}));
  const std::string empty_message(5, '\0');
  client.Send({{.type = Http2Type::kData, .flags = testing::kEndStream, .stream_id = 1, .payload = empty_message}});
  return client.ReadUntilClosed(kMoment);
}

class HostileConnections : public ::testing::Test {
 protected:
  ServiceProcess verifier_{"foretoken_verifier", {}, {}, kFewDescriptors};
  client::GenerationClient client_ = Connect(verifier_);
};

TEST_F(HostileConnections, OneWithMoreCallsThanAllowedEnds) {
  constexpr uint32_t kMaxCalls = 1024;
  RawHttp2 hostile(verifier_.address());
  hostile.Greet();
  const auto call = [&](uint32_t call_idx) { hostile.Send(RequestHeaders(2 * call_idx + 1, kWatch)); };
  for (uint32_t i = 0; i < kMaxCalls; ++i) call(i);
  hostile.ReadUntilClosed(kMoment);
  EXPECT_FALSE(hostile.is_closed());
  call(kMaxCalls);
  hostile.ReadUntilClosed(kPatience);
  EXPECT_TRUE(hostile.is_closed());
  EXPECT_TRUE(client_.GetModelInfo().ok()) << "another client";
}

TEST_F(HostileConnections, OneWithMoreMetadataThanAllowedEnds) {
  for (const size_t num_bytes : {60'000, 80'000, 200'000}) {
    const std::vector<Http2Frame> answer = CheckHealth(verifier_.address(), num_bytes);
    const bool is_allowed = num_bytes <= 64 << 10;
    EXPECT_EQ(Has(answer, Http2Type::kData), is_allowed) << num_bytes;
    EXPECT_EQ(Has(answer, Http2Type::kHeaders, "exceeds limit"), !is_allowed) << num_bytes;
  }
  EXPECT_TRUE(client_.GetModelInfo().ok()) << "another client";
}

// A client that does not acknowledge the limit of calls can open any number of them. When they have ended, the service
// must give their memory back to the system.
TEST_F(HostileConnections, MemoryOfManyCallsWithMuchMetadataComesBack) {
  constexpr uint32_t kNumCalls = 5000;
  constexpr int64_t kBytesOfEach = 60'000;
  const QuietLevels levels({&verifier_});
  const int64_t before = verifier_.process().MemoryBytes();
  {
    RawHttp2 hostile(verifier_.address());
    hostile.Greet(/*acknowledges=*/false);
    const std::pair<std::string, std::string> more = {"x-more", std::string(kBytesOfEach, 'x')};
    for (uint32_t i = 0; i < kNumCalls; ++i) hostile.Send(RequestHeaders(2 * i + 1, kWatch, {more}));
    const auto grown = [&] { return verifier_.process().MemoryBytes() - before; };
    EXPECT_TRUE(WaitUntil([&] { return grown() > kNumCalls * kBytesOfEach; })) << "the server has read them";
  }
  levels.ExpectBack();
}

TEST_F(HostileConnections, OneWithAFloodOfPingsEnds) {
  RawHttp2 hostile(verifier_.address());
  hostile.Greet();
  for (int i = 0; i < 20; ++i) hostile.Send({{.type = Http2Type::kPing, .payload = "12345678"}});
  const std::vector<Http2Frame> answers = hostile.ReadUntilClosed(kPatience);
  EXPECT_TRUE(Has(answers, Http2Type::kGoAway, "too_many_pings"));
  EXPECT_TRUE(hostile.is_closed());
}

// Half of the connections say nothing, and the other half greet and make no call. A server with TLS waits for a
// greeting of its own.
TEST_F(HostileConnections, ThousandsOfIdleOnesDisturbNobodyAndSilentOnesEnd) {
  constexpr int kNumEach = 1000;
  rlimit descriptors = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &descriptors), 0);
  if (descriptors.rlim_max < 4 * kNumEach) GTEST_SKIP() << "too few descriptors: " << descriptors.rlim_max;
  descriptors.rlim_cur = descriptors.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &descriptors), 0);
  const testing::TestAuthority authority;
  const testing::MountedCertificate files(authority, {.names = {"IP:127.0.0.1"}});
  ServiceProcess secure("foretoken_proposer", {"--tls_certificate=" + files.certificate(), "--tls_key=" + files.key()});

  StreamLoad load(client_, {.num_streams = 2});
  ASSERT_TRUE(load.Continues());
  {
    std::deque<RawHttp2> silent, idle;
    for (int i = 0; i < kNumEach; ++i) {
      silent.emplace_back(verifier_.address());
      idle.emplace_back(verifier_.address()).Greet();
    }
    EXPECT_TRUE(load.Continues()) << "beside them";
    EXPECT_TRUE(Has(CheckHealth(verifier_.address(), 0), Http2Type::kData)) << "on a connection after them";
    const absl::Time end = absl::Now() + kPatience;
    silent.emplace_back(secure.address());
    const auto num_closed = [&](std::deque<RawHttp2>& connections, absl::Time until) {
      return std::ranges::count_if(connections, [&](RawHttp2& connection) {
        connection.ReadUntilClosed(until - absl::Now());
        return connection.is_closed();
      });
    };
    EXPECT_EQ(num_closed(silent, end), silent.size());
    EXPECT_EQ(num_closed(idle, absl::InfinitePast()), 0);
    EXPECT_TRUE(load.Continues()) << "after the silent ones have ended";
  }
  load.ExpectTheTokensOfNoSpeculation();
}

}  // namespace
}  // namespace foretoken
