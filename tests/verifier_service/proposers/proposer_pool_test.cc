// SPDX-License-Identifier: Apache-2.0
// The pool with scripted proposers over real loopback gRPC. If this test fails, guesses are lost, late, or taken from
// proposers that do not match the verifier.
#include "verifier_service/proposers/proposer_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/cases/tree_columns.h"
#include "tests/testing/fakes/scripted_proposer.h"
#include "tests/verifier_service/proposers/pool_speaker.h"

namespace foretoken::verifier {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ScriptedProposer;
using ::testing::SizeIs;
using Behaviour = ScriptedProposer::Behaviour;

TEST(ProposerPool, OpensAdvancesAndTakesTheTreesOfThatPosition) {
  ScriptedProposer proposer({});
  const auto pool = MakePool({Static(proposer)});
  EXPECT_THAT(pool->Names(), ElementsAre("ngram"));
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 7);
  for (int step = 0; step < 20; ++step) {
    speaker.Step();
    ASSERT_TRUE(speaker.GetsATree());
    EXPECT_EQ(speaker.newest().tree.position, speaker.num_tokens());
    EXPECT_EQ(speaker.newest().proposer_idx, 0);
    const auto next = static_cast<int32_t>(speaker.num_tokens());
    EXPECT_THAT(testing::TokenIds(speaker.newest().tree), ElementsAre(next, next + 1, next + 2, next + 3));
    for (const speculation::TreeNode& node : speaker.newest().tree.nodes) EXPECT_EQ(node.proposers, 1);
  }
  pool->Close(7);
  pool->Flush({});
  EXPECT_TRUE(Eventually([&] { return proposer.Mirrors().empty(); }));
  EXPECT_THAT(proposer.Breaches(), IsEmpty());
  const ProposerCounters counters = pool->GetCounters()[0];
  EXPECT_EQ(counters.num_trees, 20);
  EXPECT_EQ(counters.num_bad_trees, 0);
  EXPECT_EQ(counters.num_connects, 1);
  EXPECT_GT(counters.num_sent_bytes, 20 * 5);
  EXPECT_GT(counters.num_received_bytes, 20 * 4 * 6);
}

TEST(ProposerPool, TakeProposalsWaitsForAnswersThatAreDueAndNotOtherwise) {
  ScriptedProposer proposer({});
  const auto pool = MakePool({Static(proposer)});
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 1);
  const absl::Time start = absl::Now();
  EXPECT_THAT(pool->TakeProposals(kLong), IsEmpty());
  speaker.Step(/*node_budget=*/0);
  EXPECT_THAT(pool->TakeProposals(kLong), IsEmpty());
  EXPECT_LT(absl::Now() - start, kLong / 4);
  proposer.SetDelay(absl::Milliseconds(30));
  speaker.Step();
  EXPECT_THAT(pool->TakeProposals(kLong), SizeIs(1));
  EXPECT_LT(absl::Now() - start, kLong / 2);
}

TEST(ProposerPool, AnswersOfAnEmbeddedProposerComeOverTheSamePath) {
  ScriptedProposer proposer({});
  ProposerSpec spec = ParseProposerSpec("ngram,embedded").value();
  spec.channel = proposer.InProcessChannel();
  const auto pool = ProposerPool::Create({spec}, PoolOptions()).value();
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 1);
  speaker.Step();
  EXPECT_TRUE(speaker.GetsATree());
  EXPECT_THAT(proposer.Breaches(), IsEmpty());
}

TEST(ProposerPool, TwoMethodsServeOneSequenceUnlessItNamesOne) {
  ScriptedProposer ngram({});
  ScriptedProposer suffix({.method = "suffix"});
  const auto pool = MakePool({Static(ngram), "suffix=static:" + suffix.address()});
  ASSERT_TRUE(IsConnected(*pool));
  ASSERT_TRUE(Eventually([&] { return pool->GetStatus()[1].num_connected == 1; }));
  const std::vector<int32_t> prompt = {1, 2};
  pool->Open({.sequence_id = 1, .token_ids = prompt});
  pool->Open({.sequence_id = 2, .token_ids = prompt, .proposers = 0b10});
  pool->Advance(1, std::vector<int32_t>{3}, {.node_budget = 4, .proposers = ~0u});
  pool->Advance(2, std::vector<int32_t>{3}, {.node_budget = 4, .proposers = ~0u});
  pool->Flush({});
  std::set<std::pair<SequenceId, uint32_t>> seen;
  EXPECT_TRUE(Eventually([&] {
    for (const Proposal& proposal : pool->TakeProposals(absl::Milliseconds(50))) {
      seen.emplace(proposal.sequence_id, proposal.proposer_idx);
      EXPECT_EQ(proposal.tree.nodes.at(0).proposers, 1u << proposal.proposer_idx);
    }
    return seen.size() == 3;
  }));
  EXPECT_THAT(seen, ElementsAre(std::pair(1, 0), std::pair(1, 1), std::pair(2, 1)));
}

TEST(ProposerPool, CreateRefusesSpecsThatCannotBe) {
  const ProposerSpec ngram = ParseProposerSpec("ngram=static:127.0.0.1:1").value();
  EXPECT_THAT(std::string(ProposerPool::Create({ngram, ngram}, PoolOptions()).status().message()),
              HasSubstr("given twice"));
  EXPECT_THAT(
      std::string(
          ProposerPool::Create({ParseProposerSpec("ngram,embedded").value()}, PoolOptions()).status().message()),
      HasSubstr("no channel"));
  ProposerPoolOptions options = PoolOptions();
  options.num_tokens = 0;
  EXPECT_THAT(std::string(ProposerPool::Create({ngram}, options).status().message()), HasSubstr("num_tokens"));
  for (const char* own : {"prediction", "grammar"}) {
    const ProposerSpec spec = ParseProposerSpec(absl::StrCat(own, "=static:127.0.0.1:1")).value();
    EXPECT_THAT(std::string(ProposerPool::Create({spec}, PoolOptions()).status().message()),
                HasSubstr("expected another name"));
  }
  std::vector<ProposerSpec> many(32, ngram);
  for (size_t i = 0; i < many.size(); ++i) many[i].method = absl::StrCat("m", i);
  EXPECT_THAT(std::string(ProposerPool::Create(many, PoolOptions()).status().message()), HasSubstr("at most 30"));
}

TEST(ProposerPool, AProposerOfAnotherMethodVocabularyOrNeedIsNotUsed) {
  ScriptedProposer other_method({.method = "suffix"});
  ScriptedProposer other_words({.vocabulary_fingerprint = "bb"});
  ScriptedProposer needy({.needed_features = {"hidden.7"}});
  ScriptedProposer same_words({.vocabulary_fingerprint = "aa"});
  const auto pool = MakePool({absl::StrCat("ngram=static:", other_method.address(), ",", other_words.address(), ",",
                                           needy.address(), ",", same_words.address())});
  ASSERT_TRUE(IsConnected(*pool));
  // The pool asks them again now and then, because another proposer may run there later.
  for (const ScriptedProposer* proposer : {&other_method, &other_words, &needy}) {
    EXPECT_TRUE(Eventually([&] { return proposer->num_describes() >= 2; }));
    EXPECT_EQ(proposer->num_streams(), 0);
  }
  EXPECT_TRUE(Eventually([&] { return same_words.num_streams() == 1; }));
}

TEST(ProposerPool, AProposerOfAHigherProtocolVersionIsNotUsed) {
  ScriptedProposer newer({.protocol_version = 2});
  ScriptedProposer same({.protocol_version = 1, .features = {"refusals", "nobody has heard of this"}});
  const auto pool = MakePool({Static(newer) + "," + same.address()});
  ASSERT_TRUE(IsConnected(*pool));
  EXPECT_TRUE(Eventually([&] { return newer.num_describes() >= 1; }));
  EXPECT_TRUE(Eventually([&] { return same.num_streams() == 1; }));
  EXPECT_EQ(newer.num_streams(), 0);
}

TEST(ProposerPool, OnlyAProposerThatReadsMasksGetsThem) {
  for (const bool reads_masks : {false, true}) {
    ScriptedProposer proposer(
        {.features = reads_masks ? std::vector<std::string>{"allowed_tokens"} : std::vector<std::string>{}});
    const auto pool = MakePool({Static(proposer)});
    ASSERT_TRUE(IsConnected(*pool));
    pool->Open({.sequence_id = 1, .token_ids = std::vector<int32_t>{5}});
    pool->Advance(1, std::vector<int32_t>{6},
                  {.node_budget = 4, .proposers = ~0u, .allowed_tokens = std::vector<uint32_t>{0b100}});
    pool->Flush({});
    ASSERT_TRUE(Eventually([&] { return !proposer.Requests().empty(); }));
    const v1::ProposeRequest request = proposer.Requests().front();
    ASSERT_EQ(request.advances_size(), 1);
    EXPECT_EQ(request.advances(0).allowed_tokens(), reads_masks ? "\x04" : "");
  }
}

TEST(ProposerPool, AStreamsFirstMessageNamesTheVocabulary) {
  ScriptedProposer proposer({});
  const auto pool = MakePool({Static(proposer)});
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 1);
  for (int i = 0; i < 2; ++i) {
    speaker.Step();
    ASSERT_TRUE(speaker.GetsATree());
  }
  const std::vector<v1::ProposeRequest> requests = proposer.Requests();
  ASSERT_GE(requests.size(), 2);
  EXPECT_EQ(requests[0].vocabulary_fingerprint(), "aa");
  for (size_t i = 1; i < requests.size(); ++i) EXPECT_EQ(requests[i].vocabulary_fingerprint(), "");
}

TEST(ProposerPool, RefusalsAreCountedOnceAndByReason) {
  ScriptedProposer proposer({});
  const auto pool = MakePool({Static(proposer)});
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 1);
  const auto refuse = [&](int reason) {
    const std::vector<ScriptedProposer::Mirror> mirrors = proposer.Mirrors();
    const uint64_t num_refused = pool->GetCounters()[0].num_refused;
    v1::ProposeResponse response;
    v1::RefusedSession& refused = *response.add_refusals();
    refused.set_session_id(mirrors.back().session_id);
    refused.set_reason(static_cast<v1::RefusalReason>(reason));
    refused.set_detail("because\nof this");
    response.add_refused_session_ids(refused.session_id());
    proposer.Push(response);
    EXPECT_TRUE(Eventually([&] { return pool->GetCounters()[0].num_refused > num_refused; }));
    EXPECT_TRUE(speaker.Regains());
  };
  ASSERT_TRUE(speaker.Regains());
  refuse(v1::REFUSAL_REASON_INVALID);
  refuse(v1::REFUSAL_REASON_FULL);
  refuse(99);
  const ProposerCounters counters = pool->GetCounters()[0];
  EXPECT_EQ(counters.num_refused, 3);
  EXPECT_EQ(counters.num_refused_by_reason[v1::REFUSAL_REASON_INVALID], 1);
  EXPECT_EQ(counters.num_refused_by_reason[v1::REFUSAL_REASON_FULL], 1);
  EXPECT_EQ(counters.num_refused_by_reason[v1::REFUSAL_REASON_UNSPECIFIED], 1);
}

TEST(ProposerPool, LongContextsArriveWholeInPieces) {
  ScriptedProposer proposer({});
  const auto pool = MakePool({Static(proposer)});
  ASSERT_TRUE(IsConnected(*pool));
  Speaker reader(*pool, 1, 100'000);
  Speaker talker(*pool, 2);
  talker.Step();
  reader.Step();
  EXPECT_TRUE(reader.GetsATree());
  EXPECT_EQ(reader.newest().tree.position, 100'001);
  EXPECT_THAT(proposer.Breaches(), IsEmpty());  // no pieces above 64 KiB, and no gaps
  size_t num_pieces = 0;
  for (const v1::ProposeRequest& request : proposer.Requests()) {
    for (const v1::OpenSession& open : request.opens()) num_pieces += open.awaiting_more() ? 1 : 0;
    for (const v1::AdvanceSession& advance : request.advances()) num_pieces += advance.awaiting_more() ? 1 : 0;
  }
  EXPECT_GE(num_pieces, 4);
}

TEST(ProposerPool, RefusedSequencesMoveToAnotherReplica) {
  ScriptedProposer full({});
  ScriptedProposer free({});
  full.SetBehaviour(Behaviour::kRefuse);
  const auto pool = MakePool({absl::StrCat(Static(full), ",", free.address())});
  ASSERT_TRUE(IsConnected(*pool, 2));
  std::vector<Speaker> speakers;
  for (SequenceId id = 1; id <= 4; ++id) speakers.emplace_back(*pool, id);
  for (Speaker& speaker : speakers) speaker.Step();
  EXPECT_TRUE(Eventually([&] { return free.Mirrors().size() == 4; }));
  for (Speaker& speaker : speakers) EXPECT_TRUE(speaker.Regains());
  EXPECT_GE(pool->GetCounters()[0].num_moved_sessions, 2);
}

TEST(ProposerPool, ASequenceThatAllRefuseIsAcceptedLaterWithoutTheEngine) {
  ScriptedProposer proposer({});
  proposer.SetBehaviour(Behaviour::kRefuse);
  const auto pool = MakePool({Static(proposer)});
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 1);
  speaker.Step();
  ASSERT_TRUE(Eventually([&] { return proposer.Requests().size() >= 3; }));  // the pool keeps trying
  proposer.SetBehaviour(Behaviour::kAnswer);
  EXPECT_TRUE(speaker.GetsATree());
  EXPECT_GE(pool->GetCounters()[0].num_refused, 2);
  EXPECT_THAT(proposer.Breaches(), IsEmpty());
}

TEST(ProposerPool, AnUnknownSessionIsOpenedAnewWithItsWholeContext) {
  ScriptedProposer proposer({});
  const auto pool = MakePool({Static(proposer)});
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 1);
  speaker.Step();
  ASSERT_TRUE(speaker.GetsATree());
  v1::ProposeResponse unknown;
  unknown.add_unknown_session_ids(proposer.Mirrors().at(0).session_id);
  unknown.add_unknown_session_ids(4711);  // a session that never existed does not count
  proposer.Push(unknown);
  EXPECT_TRUE(speaker.GetsATree());
  EXPECT_EQ(proposer.Mirrors().back().token_ids.size(), speaker.num_tokens());
  EXPECT_EQ(pool->GetCounters()[0].num_unknown, 1);
  EXPECT_THAT(proposer.Breaches(), IsEmpty());
}

TEST(ProposerPool, TwoReplicasShareTheSequencesAndOneTakesAllWhenTheOtherDies) {
  ScriptedProposer first({});
  ScriptedProposer second({});
  const auto pool = MakePool({absl::StrCat(Static(first), ",", second.address())});
  ASSERT_TRUE(IsConnected(*pool, 2));
  std::vector<Speaker> speakers;
  for (SequenceId id = 1; id <= 8; ++id) speakers.emplace_back(*pool, id);
  for (Speaker& speaker : speakers) EXPECT_TRUE(speaker.Regains());
  EXPECT_EQ(first.Mirrors().size(), 4);
  EXPECT_EQ(second.Mirrors().size(), 4);
  first.Kill();
  for (Speaker& speaker : speakers) EXPECT_TRUE(speaker.Regains());
  EXPECT_EQ(second.Mirrors().size(), 8);
  EXPECT_EQ(pool->GetCounters()[0].num_moved_sessions, 4);
  EXPECT_THAT(second.Breaches(), IsEmpty());
}

TEST(ProposerPool, AddressesComeAndGoWithTheName) {
  ScriptedProposer first({});
  ScriptedProposer second({});
  absl::Mutex mutex;
  std::optional addresses = std::vector<std::string>{first.address()};  // unset: the lookup fails
  ProposerPoolOptions options = PoolOptions();
  options.resolve = [&](const std::string& name) -> absl::StatusOr<std::vector<std::string>> {
    EXPECT_EQ(name, "proposer:50052");
    absl::MutexLock lock(&mutex);
    if (!addresses.has_value()) return absl::UnavailableError("no resolver today");
    return *addresses;
  };
  const auto resolve_to = [&](std::optional<std::vector<std::string>> to) {
    absl::MutexLock lock(&mutex);
    addresses = std::move(to);
  };
  const testing::CapturedLog log;
  const auto pool = MakePool({"ngram=dns:///proposer:50052"}, options);
  ASSERT_TRUE(IsConnected(*pool, 1));
  Speaker speaker(*pool, 1);
  EXPECT_TRUE(speaker.Regains());
  resolve_to(std::vector<std::string>{first.address(), second.address()});
  EXPECT_TRUE(IsConnected(*pool, 2));
  EXPECT_EQ(first.Mirrors().size(), 1);  // the sequence stays at its replica
  resolve_to(std::nullopt);
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(absl::StrJoin(log.Lines(), " "), "no resolver today"); }));
  absl::SleepFor(absl::Milliseconds(60));
  EXPECT_TRUE(IsConnected(*pool, 2));  // known addresses stay in use
  EXPECT_THAT(log.Lines(), Contains(HasSubstr("proposer ngram: no resolver today")).Times(1));
  resolve_to(std::vector<std::string>{second.address()});
  EXPECT_TRUE(Eventually([&] { return first.num_streams() == 0 && second.Mirrors().size() == 1; }));
  EXPECT_TRUE(speaker.Regains());
}

// The system's resolver takes half a minute where no name server answers, and a pod has seconds to end.
TEST(ProposerPool, ItsEndDoesNotWaitForALookup) {
  struct Lookup {
    absl::Notification began, may_end;
  };
  const auto lookup = std::make_shared<Lookup>();  // may outlive the test
  ProposerPoolOptions options = PoolOptions();
  options.resolve = [lookup](const std::string&) -> absl::StatusOr<std::vector<std::string>> {
    lookup->began.Notify();
    lookup->may_end.WaitForNotification();
    return std::vector<std::string>{"ipv4:127.0.0.1:1"};
  };
  auto pool = MakePool({"ngram=dns:///proposer:50052"}, options);
  lookup->began.WaitForNotification();
  const absl::Time begin = absl::Now();
  pool.reset();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  lookup->may_end.Notify();
}

TEST(ProposerPool, ANameWithTooManyAddressesKeepsTheKnownOnesAndIsLoggedOnce) {
  ScriptedProposer first({});
  ScriptedProposer second({});
  const testing::CapturedLog log;
  absl::Mutex mutex;
  std::vector<std::string> addresses = {second.address()};
  std::atomic<int> num_resolved = 0;
  ProposerPoolOptions options = PoolOptions();
  options.max_addresses = 1;
  options.resolve = [&](const std::string&) -> absl::StatusOr<std::vector<std::string>> {
    absl::MutexLock lock(&mutex);
    ++num_resolved;
    return addresses;
  };
  const auto pool = MakePool({"ngram=dns:///proposer:50052"}, options);
  ASSERT_TRUE(IsConnected(*pool, 1));
  const auto resolve_to = [&](std::vector<std::string> to) {
    absl::MutexLock lock(&mutex);
    addresses = std::move(to);
    num_resolved = 0;
  };
  resolve_to({first.address(), second.address()});
  ASSERT_TRUE(Eventually([&] { return num_resolved > 5; }));
  EXPECT_TRUE(IsConnected(*pool, 1));
  EXPECT_EQ(second.num_streams(), 1);
  EXPECT_EQ(first.num_streams(), 0);
  const auto num_lines = std::ranges::count_if(log.Lines(), [](const std::string& line) {
    return line == "warning proposer ngram: proposer:50052 has 2 addresses, of which 1 are used";
  });
  EXPECT_EQ(num_lines, 1);
  resolve_to({first.address()});
  EXPECT_TRUE(Eventually([&] { return first.num_streams() == 1 && second.num_streams() == 0; }));
}

TEST(ProposerPool, KnowsThatAProposerIsAbsent) {
  ScriptedProposer proposer({});
  const auto pool = MakePool({Static(proposer), "suffix=static:127.0.0.1:1"});
  ASSERT_TRUE(IsConnected(*pool));
  const Speaker speaker(*pool, 1);
  EXPECT_EQ(pool->FindMissing(1).absent, 2u);
  EXPECT_EQ(pool->FindMissing(1).refusing, 0u);
}

TEST(ProposerPool, EndsCleanlyWithStreamsOpenAndCallsInFlight) {
  for (int round = 0; round < 10; ++round) {
    ScriptedProposer proposer({});
    ScriptedProposer dead({});
    dead.Kill();
    if (round % 3 == 1) proposer.SetBehaviour(Behaviour::kNeverRead);
    if (round % 3 == 2) proposer.SetDelay(absl::Milliseconds(5));
    const auto pool = MakePool({absl::StrCat(Static(proposer), ",", dead.address())});
    if (round % 2 == 0) {
      ASSERT_TRUE(IsConnected(*pool));
    }
    Speaker speaker(*pool, 1, 20'000);
    for (int step = 0; step < round; ++step) speaker.Step();
  }
}

// The pool ends before, during and after the DescribeProposer call. Sanitizers report any use of freed objects.
TEST(ProposerPool, EndsCleanlyAtAnyTimeOfItsFirstCall) {
  ScriptedProposer proposer({});
  ProposerSpec spec = ParseProposerSpec("ngram,embedded").value();
  spec.channel = proposer.InProcessChannel();
  for (int round = 0; round < 200; ++round) {
    const auto pool = ProposerPool::Create({spec}, PoolOptions()).value();
    absl::SleepFor(absl::Microseconds(10) * round);
  }
  EXPECT_THAT(proposer.Breaches(), IsEmpty());
}

TEST(ProposerPool, StatusAndCountersAreReadWhileTheEngineRuns) {
  ScriptedProposer proposer({});
  const auto pool = MakePool({Static(proposer)});
  std::atomic<bool> is_done = false;
  std::thread reader([&] {
    while (!is_done) {
      EXPECT_EQ(pool->GetStatus().at(0).name, "ngram");
      const ProposerCounters counters = pool->GetCounters().at(0);
      EXPECT_GE(counters.num_connects, counters.num_breaks);
    }
  });
  Speaker speaker(*pool, 1);
  EXPECT_TRUE(speaker.Regains());
  proposer.Kill();
  for (int step = 0; step < 50; ++step) speaker.Step();
  proposer.Start();
  EXPECT_TRUE(speaker.Regains());
  is_done = true;
  reader.join();
}

}  // namespace
}  // namespace foretoken::verifier
