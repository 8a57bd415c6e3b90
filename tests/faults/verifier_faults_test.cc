// SPDX-License-Identifier: Apache-2.0
// A verifier that is killed, stopped or started anew. If this test fails, its clients wait for a dead server, its
// sessions stay at proposers, or the next verifier is not served.
#include <signal.h>

#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/faults/quiet_levels.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/fakes/tcp_relay.h"

namespace foretoken {
namespace {

// Loopback tells a client at once; the rest is for a busy machine.
constexpr absl::Duration kAtOnce = absl::Seconds(20);

class VerifierFaults : public ::testing::Test {
 protected:
  bool HasSessions(int num_sessions) const {
    return WaitUntil([&] {
      return ngram_.Metric("foretoken_proposer_sessions") == num_sessions &&
             suffix_.Metric("foretoken_proposer_sessions") == num_sessions;
    });
  }

  ServiceProcess ngram_{"foretoken_proposer", {}};
  ServiceProcess suffix_{"foretoken_proposer", {"--method=suffix"}};
  ServiceProcess verifier_{"foretoken_verifier",
                           {"--proposer=ngram=static:" + ngram_.address() + ";suffix=static:" + suffix_.address()}};
};

TEST_F(VerifierFaults, AKilledOneFailsItsCallsAtOnceAndTheNextOneIsServed) {
  client::GenerationClient client = Connect(verifier_);
  std::optional<QuietLevels> levels;
  {
    StreamLoad load(client, {.num_streams = 4});
    ASSERT_TRUE(load.AcceptsMore());
    ASSERT_TRUE(HasSessions(4));
    levels.emplace(std::vector<ServiceProcess*>{&verifier_, &ngram_, &suffix_});
    verifier_.Kill();
    const absl::Time killed_at = absl::Now();
    load.Finish();
    EXPECT_LT(absl::Now() - killed_at, kAtOnce);
    EXPECT_EQ(load.errors().size(), 4) << "one for each running call";
    for (const std::string& error : load.errors()) EXPECT_TRUE(absl::StartsWith(error, "UNAVAILABLE")) << error;
  }
  EXPECT_TRUE(HasSessions(0)) << "the proposers end the sessions of a verifier that is gone";
  EXPECT_EQ(ngram_.Metric("foretoken_proposer_streams"), 0);

  verifier_.Restart();
  EXPECT_TRUE(WaitUntil([&] { return client.GetModelInfo().ok() && NumConnected(client) == 2; }));
  StreamLoad load(client, {.num_streams = 4});
  EXPECT_TRUE(load.AcceptsMore()) << "with the next verifier";
  load.ExpectTheTokensOfNoSpeculation();
  levels->ExpectBack();
}

TEST_F(VerifierFaults, AStoppedOneGoesOnWhereItWas) {
  client::GenerationClient client = Connect(verifier_);
  StreamLoad load(client, {.num_streams = 4});
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier_, &ngram_, &suffix_});
  verifier_.process().Signal(SIGSTOP);
  absl::SleepFor(absl::Seconds(2));
  verifier_.process().Signal(SIGCONT);
  EXPECT_TRUE(load.AcceptsMore()) << "after it continued";
  load.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();
}

// Long enough that the proposers have given its sessions up, or its client its calls, too.
class VerifierFaultsLong : public VerifierFaults, public ::testing::WithParamInterface<int> {};

TEST_P(VerifierFaultsLong, AStoppedOneServesAgain) {
  client::GenerationClient client = Connect(verifier_);
  StreamLoad load(client, {.num_streams = 4});
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier_, &ngram_, &suffix_});
  verifier_.process().Signal(SIGSTOP);
  absl::SleepFor(absl::Seconds(GetParam()));
  verifier_.process().Signal(SIGCONT);
  load.Finish();
  for (const std::string& error : load.errors()) EXPECT_TRUE(absl::StartsWith(error, "UNAVAILABLE")) << error;
  EXPECT_TRUE(WaitUntil([&] { return client.GetModelInfo().ok() && NumConnected(client) == 2; }));
  StreamLoad next(client, {.num_streams = 4});
  EXPECT_TRUE(next.AcceptsMore()) << "after it continued";
  next.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();
}

INSTANTIATE_TEST_SUITE_P(Seconds, VerifierFaultsLong, ::testing::Values(20, 45));

// The network to a verifier's host is cut, and no end of the connection arrives.
TEST_F(VerifierFaults, AVanishedOneLeavesNoSession) {
  testing::TcpRelay relay(ngram_.address());
  ServiceProcess verifier("foretoken_verifier", {"--proposer=ngram=static:" + relay.address()});
  client::GenerationClient client = Connect(verifier);
  StreamLoad load(client, {.num_streams = 4});
  ASSERT_TRUE(load.AcceptsMore());
  ASSERT_TRUE(WaitUntil([&] { return ngram_.Metric("foretoken_proposer_sessions") > 0; }));
  const QuietLevels levels({&verifier, &ngram_});
  relay.Freeze();
  load.Finish();
  levels.ExpectBack();
}

// As an operator does it: one after the other, each when the last one is connected again.
TEST(RollingRestart, OfAllProposersFailsNoRequest) {
  std::vector<std::unique_ptr<ServiceProcess>> proposers;
  for (int i = 0; i < 3; ++i) {
    proposers.push_back(
        std::make_unique<ServiceProcess>("foretoken_proposer", std::vector<std::string>{"--drain_grace=1s"}));
  }
  const std::string spec = absl::StrCat("--proposer=ngram=static:", proposers[0]->address(), ",",
                                        proposers[1]->address(), ",", proposers[2]->address());
  ServiceProcess verifier("foretoken_verifier", {spec});
  client::GenerationClient client = Connect(verifier);
  ASSERT_TRUE(WaitUntil([&] { return NumConnected(client) == 3; }));
  StreamLoad load(client, {.num_streams = 6});
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier, proposers[0].get(), proposers[1].get(), proposers[2].get()});
  for (const auto& proposer : proposers) {
    EXPECT_EQ(proposer->Terminate(), 0);
    proposer->Restart();
    EXPECT_TRUE(WaitUntil([&] { return NumConnected(client) == 3; }));
    EXPECT_TRUE(load.AcceptsMore());
  }
  load.ExpectTheTokensOfNoSpeculation();  // and no error
  levels.ExpectBack();
}

}  // namespace
}  // namespace foretoken
