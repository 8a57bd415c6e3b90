// SPDX-License-Identifier: Apache-2.0
// Shared services as processes: one proposer serves two verifiers, and several replicas of several proposers serve one
// verifier. If this test fails, sharing changes a client's tokens or leaves a verifier without guesses.
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/integration/connect.h"
#include "tests/integration/proposer_methods.h"
#include "tests/integration/stream_load.h"

namespace foretoken {
namespace {

class SharedProposer : public ::testing::TestWithParam<ProposerMethod> {};

TEST_P(SharedProposer, ServesTwoVerifiersAtOnce) {
  ServiceProcess proposer("foretoken_proposer", FlagsOf(GetParam()));
  ServiceProcess first("foretoken_verifier", {SpecOf(GetParam(), proposer)});
  ServiceProcess second("foretoken_verifier", {SpecOf(GetParam(), proposer)});
  client::GenerationClient first_client = Connect(first);
  client::GenerationClient second_client = Connect(second);
  StreamLoad first_load(first_client, {.num_streams = 2});
  StreamLoad second_load(second_client, {.num_streams = 2});
  EXPECT_TRUE(first_load.AcceptsMore());
  EXPECT_TRUE(second_load.AcceptsMore());
  EXPECT_EQ(proposer.Metric("foretoken_proposer_streams"), 2);
  EXPECT_TRUE(WaitUntil([&] { return proposer.Metric("foretoken_proposer_sessions") >= 3; }))
      << "both verifiers have sessions at once";
  // The end of one verifier does not end the other's sessions.
  first_load.Finish();
  first.process().Signal(SIGKILL);
  first.process().Wait();
  EXPECT_TRUE(second_load.AcceptsMore());
  EXPECT_TRUE(WaitUntil([&] { return proposer.Metric("foretoken_proposer_streams") == 1; }));
  EXPECT_TRUE(WaitUntil([&] { return proposer.Metric("foretoken_proposer_sessions") <= 2; }));
  second_load.ExpectTheTokensOfNoSpeculation();
  // Both verifiers serve the same model, so the second gives the expected tokens of the first.
  StreamLoad plain(second_client,
                   {.mode = v1::SPECULATION_MODE_OFF, .num_requests = static_cast<int>(first_load.Outputs().size())});
  EXPECT_TRUE(WaitUntil([&] { return plain.num_tokens() == kRequestTokens * first_load.Outputs().size(); }));
  EXPECT_EQ(first_load.Outputs(), plain.Outputs());
}

INSTANTIATE_TEST_SUITE_P(Methods, SharedProposer, EveryMethod(), NameOf);

TEST(FullProposer, LetsItsVerifierSayHowManySequencesWaitForRoom) {
  ServiceProcess proposer("foretoken_proposer", {"--max_sessions=4"});  // a stream may take half of them
  ServiceProcess verifier("foretoken_verifier", {"--proposer=ngram=static:" + proposer.address()});
  client::GenerationClient client = Connect(verifier);
  ASSERT_TRUE(WaitUntil([&] { return NumConnected(client) == 1; }));
  const auto num_waiting = [&] { return verifier.Metric("foretoken_proposer_waiting_sessions"); };
  StreamLoad load(client, {.num_streams = 4});
  EXPECT_TRUE(WaitUntil([&] { return num_waiting() == 2; }));
  EXPECT_TRUE(load.AcceptsMore());
  EXPECT_EQ(verifier.Metric("foretoken_proposer_refusals_total"), 0) << "the verifier asks no full replica";
  load.ExpectTheTokensOfNoSpeculation();
  EXPECT_TRUE(WaitUntil([&] { return num_waiting() == 0; }));
}

TEST(ManyProposers, OfSeveralMethodsAndReplicasServeOneVerifierAndMayLeave) {
  constexpr int kNumStreams = 4;
  const std::string draft_flag = "--model=" + testing::SourcePath("deploy/demo/draft");
  ServiceProcess ngram_1("foretoken_proposer", {"--method=ngram"});
  ServiceProcess ngram_2("foretoken_proposer", {"--method=ngram"});
  ServiceProcess suffix_1("foretoken_proposer", {"--method=suffix"});
  ServiceProcess suffix_2("foretoken_proposer", {"--method=suffix"});
  ServiceProcess draft("foretoken_proposer", {"--method=draft", draft_flag, "--threads=1"});
  ServiceProcess verifier("foretoken_verifier",
                          {absl::StrCat("--proposer=ngram=static:", ngram_1.address(), ",", ngram_2.address(),
                                        ";suffix=static:", suffix_1.address(), ",", suffix_2.address(),
                                        ";draft=static:", draft.address())});
  client::GenerationClient client = Connect(verifier);
  ASSERT_TRUE(WaitUntil([&] { return NumConnected(client) == 5; }));
  const auto num_sessions = [](const ServiceProcess& proposer) {
    return proposer.Metric("foretoken_proposer_sessions");
  };

  StreamLoad load(client, {.num_streams = kNumStreams});
  EXPECT_TRUE(load.AcceptsMore());
  // Sequences spread over the replicas of a method while sequences begin and end.
  for (const ServiceProcess* proposer : {&ngram_1, &ngram_2, &suffix_1, &suffix_2}) {
    EXPECT_TRUE(WaitUntil([&] { return num_sessions(*proposer) == kNumStreams / 2; }));
  }
  EXPECT_TRUE(WaitUntil([&] { return num_sessions(draft) == kNumStreams; }));
  EXPECT_EQ(verifier.Metric("foretoken_proposer_moved_sessions_total"), 0) << "sessions stay at their replicas";

  // Two replicas leave: one is killed, and one ends in order.
  ngram_1.process().Signal(SIGKILL);
  EXPECT_EQ(suffix_2.Terminate(), 0);
  EXPECT_TRUE(WaitUntil([&] { return NumConnected(client) == 3; }));
  EXPECT_TRUE(WaitUntil([&] { return num_sessions(ngram_2) == kNumStreams; }));
  EXPECT_TRUE(WaitUntil([&] { return num_sessions(suffix_1) == kNumStreams; }));
  EXPECT_GE(verifier.Metric("foretoken_proposer_moved_sessions_total"), 2);
  EXPECT_TRUE(load.AcceptsMore());
  // One replica comes back.
  ngram_1.Restart();
  EXPECT_TRUE(WaitUntil([&] { return num_sessions(ngram_1) > 0; }))
      << "new sequences go to the replica with the fewest sessions";
  EXPECT_TRUE(load.AcceptsMore());
  load.ExpectTheTokensOfNoSpeculation();
}

}  // namespace
}  // namespace foretoken
