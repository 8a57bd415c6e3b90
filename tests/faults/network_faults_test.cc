// SPDX-License-Identifier: Apache-2.0
// A proposer or a client behind a bad network. If this test fails, a slow, narrow, half-open or cut connection to a
// proposer changes a client's tokens or delays its steps, one to a client changes its tokens or lets it wait for ever,
// or either leaves sessions or memory behind.
#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/faults/quiet_levels.h"
#include "tests/faults/step_waits.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/fakes/tcp_relay.h"

namespace foretoken {
namespace {

using testing::TcpRelay;

struct NetworkFault {
  std::string name;
  testing::NetworkConditions conditions;
  bool is_silent = false;  // no answer arrives, so the end that asks gives the connection up
};

void PrintTo(const NetworkFault& fault, std::ostream* out) { *out << fault.name; }

// Long enough for hundreds of steps.
constexpr absl::Duration kFaultLength = absl::Seconds(2);

class NetworkFaults : public ::testing::TestWithParam<NetworkFault> {};

TEST_P(NetworkFaults, ChangeNoTokenAndDelayNoStep) {
  ServiceProcess proposer("foretoken_proposer", {});
  TcpRelay relay(proposer.address());
  ServiceProcess verifier("foretoken_verifier", {"--proposer=ngram=static:" + relay.address(), "--allow_step_reports"});
  client::GenerationClient client = Connect(verifier);
  StepWaits waits;
  StreamLoad load(client, waits.Watch({.num_streams = 2}));
  ASSERT_TRUE(load.AcceptsMore()) << "the test proves nothing: no guess is accepted before the fault";
  const QuietLevels levels({&verifier, &proposer});

  const absl::Time begin = absl::Now();
  relay.Set(GetParam().conditions);
  absl::SleepFor(kFaultLength);
  EXPECT_TRUE(load.Continues());
  EXPECT_TRUE(!GetParam().is_silent || WaitUntil([&] { return NumConnected(client) == 0; }));
  const absl::Time end = absl::Now();
  relay.Heal();
  EXPECT_TRUE(load.AcceptsMore()) << "after the fault";
  load.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();

  waits.ExpectThatNoneIsTooLong();
  const GapSummary gaps = Summarise(load.gaps(), begin, end);
  std::printf("%s: %zu messages, mean %.2f ms, p99 %.2f ms, longest %.2f ms\n", GetParam().name.c_str(), gaps.num_gaps,
              absl::ToDoubleMilliseconds(gaps.mean), absl::ToDoubleMilliseconds(gaps.p99),
              absl::ToDoubleMilliseconds(gaps.longest));
}

class ClientNetworkFaults : public ::testing::TestWithParam<NetworkFault> {};

TEST_P(ClientNetworkFaults, ChangeNoTokenOrEndTheCallByName) {
  ServiceProcess proposer("foretoken_proposer", {});
  ServiceProcess verifier("foretoken_verifier", {"--proposer=ngram=static:" + proposer.address()});
  TcpRelay relay(verifier.address());
  // The client takes ten seconds more to give up a connection on which its ping was not answered.
  auto client = client::GenerationClient::Connect({.target = relay.address(), .keepalive_ms = 2'000}).value();
  StreamLoad load(client, {.num_streams = 2});
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier, &proposer});
  relay.Set(GetParam().conditions);
  if (GetParam().is_silent) {
    // Where requests alone are lost, the running ones still end.
    int64_t num_tokens;
    do {
      num_tokens = load.num_tokens();
      absl::SleepFor(absl::Seconds(1));
    } while (num_tokens != load.num_tokens());
    const absl::Time begin = absl::Now();
    load.Finish();
    EXPECT_LT(absl::Now() - begin, absl::Seconds(40));
    EXPECT_EQ(load.errors().size(), 2) << "one for each running call";
    for (const std::string& error : load.errors()) EXPECT_TRUE(absl::StartsWith(error, "UNAVAILABLE")) << error;
    relay.Heal();
  } else {
    absl::SleepFor(kFaultLength);
    EXPECT_TRUE(load.Continues());
    relay.Heal();
    load.ExpectTheTokensOfNoSpeculation();
  }
  EXPECT_TRUE(WaitUntil([&] { return client.GetModelInfo().ok(); })) << "after the fault";
  StreamLoad next(client, {.num_streams = 2});
  EXPECT_TRUE(next.AcceptsMore());
  next.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();
}

const NetworkFault kFaults[] = {
    {.name = "Delayed", .conditions = {.delay = absl::Milliseconds(200)}},
    {.name = "Throttled", .conditions = {.bytes_per_second = 20'000}},
    {.name = "AnswersLost", .conditions = {.drops_answers = true}, .is_silent = true},
    {.name = "RequestsLost", .conditions = {.drops_requests = true}, .is_silent = true},
    {.name = "Partitioned", .conditions = {.is_partitioned = true}, .is_silent = true},
};
INSTANTIATE_TEST_SUITE_P(Kinds, NetworkFaults, ::testing::ValuesIn(kFaults),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Kinds, ClientNetworkFaults, ::testing::ValuesIn(kFaults),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace foretoken
