// SPDX-License-Identifier: Apache-2.0
// Both services as processes, with proposers that are killed and return, stand still, or are full. If this test fails,
// a proposer's fault stalls streams or changes a client's tokens, or speculation does not return by itself.
#include <signal.h>

#include "gtest/gtest.h"
#include "tests/faults/quiet_levels.h"
#include "tests/faults/step_waits.h"
#include "tests/integration/connect.h"
#include "tests/integration/proposer_methods.h"
#include "tests/integration/stream_load.h"

namespace foretoken {
namespace {

TEST(KilledProposer, StallsNoneOf32StreamsAndComesBack) {
  ServiceProcess proposer("foretoken_proposer", {});
  ServiceProcess verifier("foretoken_verifier",
                          {"--proposer=ngram=static:" + proposer.address(), "--allow_step_reports"});
  {
    client::GenerationClient client = Connect(verifier);
    StepWaits waits;
    StreamLoad load(client, waits.Watch({.mode = v1::SPECULATION_MODE_AUTO, .num_streams = 32}));
    EXPECT_TRUE(load.AcceptsMore()) << "the test proves nothing: no guess is accepted before the kill";
    const QuietLevels levels({&verifier, &proposer});
    proposer.process().Signal(SIGKILL);
    proposer.process().Wait();
    EXPECT_TRUE(WaitUntil([&] { return NumConnected(client) == 0; }));
    EXPECT_TRUE(load.Continues()) << "the streams did not continue without the proposer";
    // The verifier has used up the trees that came before the kill.
    proposer.Restart();
    EXPECT_TRUE(load.AcceptsMore()) << "no guess is accepted after the return";
    EXPECT_EQ(NumConnected(client), 1);
    load.ExpectTheTokensOfNoSpeculation();
    levels.ExpectBack();
    waits.ExpectThatNoneIsTooLong();
  }
  EXPECT_EQ(verifier.Terminate(), 0);
}

TEST(StoppedProposer, LosesItsSequencesToTheOtherReplica) {
  ServiceProcess stopped("foretoken_proposer", {});
  ServiceProcess other("foretoken_proposer", {});
  ServiceProcess verifier("foretoken_verifier",
                          {"--proposer=ngram=static:" + stopped.address() + "," + other.address()});
  client::GenerationClient client = Connect(verifier);
  ASSERT_TRUE(WaitUntil([&] { return NumConnected(client) == 2; }));
  StreamLoad load(client);
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier, &stopped, &other});
  stopped.process().Signal(SIGSTOP);
  EXPECT_TRUE(WaitUntil([&] { return NumConnected(client) == 1; }));
  EXPECT_TRUE(load.AcceptsMore()) << "at the other replica";
  EXPECT_GE(verifier.Metric("foretoken_proposer_moved_sessions_total"), 1);
  stopped.process().Signal(SIGCONT);
  EXPECT_TRUE(WaitUntil([&] { return NumConnected(client) == 2; }));
  load.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();
}

class ProposerFaults : public ::testing::TestWithParam<ProposerMethod> {};

TEST_P(ProposerFaults, RepeatedKillsChangeNoToken) {
  ServiceProcess proposer("foretoken_proposer", FlagsOf(GetParam()));
  ServiceProcess verifier("foretoken_verifier", {SpecOf(GetParam(), proposer)});
  client::GenerationClient client = Connect(verifier);
  StreamLoad load(client);
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier, &proposer});
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(load.AcceptsMore()) << "round " << round;
    proposer.Restart();
    EXPECT_TRUE(load.Continues());
  }
  EXPECT_TRUE(load.AcceptsMore()) << "after the last return";
  EXPECT_EQ(verifier.Metric("foretoken_proposer_connects_total"), 4);
  load.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();
}

// Long enough for hundreds of steps, and shorter than the silence after which a verifier leaves a replica.
constexpr absl::Duration kStandstill = absl::Seconds(2);

TEST_P(ProposerFaults, AStoppedProposerStallsNoStreamAndIsUsedAgain) {
  ServiceProcess proposer("foretoken_proposer", FlagsOf(GetParam()));
  ServiceProcess verifier("foretoken_verifier", {SpecOf(GetParam(), proposer), "--allow_step_reports"});
  client::GenerationClient client = Connect(verifier);
  StepWaits waits;
  StreamLoad load(client, waits.Watch({.num_streams = 1}));
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier, &proposer});
  const absl::Time stopped_at = absl::Now();
  proposer.process().Signal(SIGSTOP);
  absl::SleepFor(kStandstill);
  EXPECT_TRUE(load.Continues());
  const absl::Time continued_at = absl::Now();
  proposer.process().Signal(SIGCONT);
  EXPECT_TRUE(load.AcceptsMore()) << "after it continued";
  load.ExpectTheTokensOfNoSpeculation();
  EXPECT_EQ(verifier.Metric("foretoken_proposer_breaks_total"), 0)
      << "the test proves nothing: the verifier left the replica";
  levels.ExpectBack();

  waits.ExpectThatNoneIsTooLong();
  const GapSummary gaps = Summarise(load.gaps(), stopped_at, continued_at);
  EXPECT_GT(gaps.num_gaps, 100);
  EXPECT_LT(gaps.longest, kStandstill / 2) << "a step waits elsewhere than for its trees";
}

TEST_P(ProposerFaults, AFullProposerRefusesAndServesAgainWhenThereIsRoom) {
  ServiceProcess proposer("foretoken_proposer", FlagsOf(GetParam(), {"--max_sessions=1"}));
  ServiceProcess verifier("foretoken_verifier", {SpecOf(GetParam(), proposer)});
  client::GenerationClient client = Connect(verifier);
  ASSERT_TRUE(WaitUntil([&] { return NumConnected(client) == 1; }));
  ServiceProcess crowd("foretoken_verifier", {SpecOf(GetParam(), proposer)});
  client::GenerationClient crowd_client = Connect(crowd);
  ASSERT_TRUE(WaitUntil([&] { return NumConnected(crowd_client) == 1; }));
  // Both verifiers are told that there is room for one session, and both open one.
  StreamLoad crowd_load(crowd_client, {.num_streams = 2});
  StreamLoad load(client, {.num_streams = 2});
  EXPECT_TRUE(WaitUntil([&] { return proposer.Metric("foretoken_proposer_refused_sessions_total") >= 3; }));
  const QuietLevels levels({&verifier, &crowd, &proposer});
  EXPECT_TRUE(load.Continues());
  EXPECT_TRUE(crowd_load.Continues());
  EXPECT_LE(proposer.Metric("foretoken_proposer_sessions"), 1);
  crowd_load.ExpectTheTokensOfNoSpeculation();
  EXPECT_TRUE(load.AcceptsMore()) << "the proposer has room now";
  load.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();
}

INSTANTIATE_TEST_SUITE_P(Methods, ProposerFaults, EveryMethod(), NameOf);

}  // namespace
}  // namespace foretoken
