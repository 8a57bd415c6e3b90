// SPDX-License-Identifier: Apache-2.0
// The pool with proposers that die, come late, go silent, never read, or send without end. If this test fails, a faulty
// proposer delays or blocks the engine, or its sequences get no guesses although another replica is healthy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/steady_clock.h"
#include "tests/testing/fakes/scripted_proposer.h"
#include "tests/testing/fakes/tcp_relay.h"
#include "tests/verifier_service/proposers/pool_speaker.h"
#include "verifier_service/engine/engine.h"
#include "verifier_service/proposers/proposer_pool.h"

namespace foretoken::verifier {
namespace {

using ::testing::IsEmpty;
using testing::ScriptedProposer;
using testing::TcpRelay;
using Behaviour = ScriptedProposer::Behaviour;

int PortOf(const std::string& address) {
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) << address;
  return port;
}

TEST(ProposerPool, AKilledProposerCostsNoWaitAndItsReturnRegainsSpeculation) {
  ScriptedProposer proposer({});
  const auto pool = MakePool({Static(proposer)});
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 1);
  speaker.Step();
  ASSERT_TRUE(speaker.GetsATree());
  proposer.Kill();
  ASSERT_TRUE(IsConnected(*pool, 0));
  speaker.Step();
  const absl::Time start = absl::Now();
  EXPECT_THAT(pool->TakeProposals(kLong), IsEmpty());
  EXPECT_LT(absl::Now() - start, kLong / 4);
  proposer.Start();
  EXPECT_TRUE(speaker.GetsATree());  // without any call of the engine
  EXPECT_EQ(speaker.newest().tree.position, speaker.num_tokens());
  EXPECT_THAT(proposer.Breaches(), IsEmpty());
  EXPECT_EQ(pool->GetCounters()[0].num_connects, 2);
  EXPECT_EQ(pool->GetCounters()[0].num_breaks, 1);
}

TEST(ProposerPool, AWaitEndsWhenTheReplicaItWaitsForDies) {
  ScriptedProposer proposer({});
  const auto pool = MakePool({Static(proposer)});
  ASSERT_TRUE(IsConnected(*pool));
  proposer.SetBehaviour(Behaviour::kSilent);
  Speaker speaker(*pool, 1);
  speaker.Step();
  ASSERT_TRUE(Eventually([&] { return !proposer.Requests().empty(); }));
  const absl::Time start = absl::Now();
  std::thread killer([&] {
    absl::SleepFor(absl::Milliseconds(20));
    proposer.Kill();
  });
  EXPECT_THAT(pool->TakeProposals(kLong), IsEmpty());
  EXPECT_LT(absl::Now() - start, kLong / 2);
  killer.join();
}

TEST(ProposerPool, AProposerThatComesLateServesSequencesThatAreThere) {
  ScriptedProposer proposer({});
  proposer.Kill();
  const auto pool = MakePool({Static(proposer)});
  Speaker speaker(*pool, 1);
  speaker.Step();
  EXPECT_THAT(pool->TakeProposals(kLong), IsEmpty());
  proposer.Start();
  EXPECT_TRUE(speaker.GetsATree());
}

TEST(ProposerPool, ASilentReplicaIsDisconnectedAndItsSequencesMove) {
  ScriptedProposer silent({});
  ScriptedProposer other({});
  silent.SetBehaviour(Behaviour::kSilent);
  ProposerPoolOptions options = PoolOptions();
  options.silence_timeout = absl::Seconds(1);  // the other replica is never this slow
  options.backoff = {.initial = absl::Minutes(5), .max = absl::Minutes(5)};
  const auto pool = MakePool({absl::StrCat(Static(silent), ",", other.address())}, options);
  ASSERT_TRUE(IsConnected(*pool, 2));
  std::vector<Speaker> speakers;
  for (SequenceId id = 1; id <= 4; ++id) speakers.emplace_back(*pool, id);
  for (Speaker& speaker : speakers) EXPECT_TRUE(speaker.Regains());
  EXPECT_EQ(pool->GetStatus()[0].num_connected, 1);
  EXPECT_EQ(other.Mirrors().size(), 4);
  EXPECT_EQ(pool->GetCounters()[0].num_moved_sessions, 2);
}

// Answers that came while the process stood still have not been read when it goes on. So the pool calls no replica
// silent until a quarter of the timeout later.
TEST(ProposerPool, AProcessThatStoodStillReadsBeforeItCallsAReplicaSilent) {
  ScriptedProposer silent({});
  silent.SetBehaviour(Behaviour::kSilent);
  std::atomic<int64_t> offset_ms = 0;
  ProposerPoolOptions options = PoolOptions();
  options.silence_timeout = absl::Seconds(4);  // a look every second
  options.now = [&] { return SteadyNow() + absl::Milliseconds(offset_ms.load()); };
  const auto pool = MakePool({Static(silent)}, options);
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 1);
  speaker.Step();
  absl::SleepFor(absl::Milliseconds(500));  // the next look is then sooner than a second
  const absl::Time begin = absl::Now();
  offset_ms = 10'000;
  ASSERT_TRUE(Eventually([&] { return pool->GetCounters()[0].num_breaks == 1; }));
  EXPECT_GE(absl::Now() - begin, absl::Seconds(1));
}

// Messages that a replica can send forever without serving any sequence.
struct Chatter {
  std::string name;
  std::function<void(ScriptedProposer&)> start;
  v1::ProposeResponse message;
};

void PrintTo(const Chatter& chatter, std::ostream* out) { *out << chatter.name; }

std::vector<Chatter> Chatters() {
  v1::ProposeResponse unknown;
  unknown.add_unknown_session_ids(4711);
  const auto say_nothing = [](ScriptedProposer& proposer) { proposer.SetBehaviour(Behaviour::kSilent); };
  const auto repeat = [](ScriptedProposer& proposer) {
    proposer.SetTree([](const ScriptedProposer::Mirror&) {
      v1::TokenTree tree;
      tree.set_position(1);
      return tree;
    });
  };
  return {{"EmptyMessages", say_nothing, {}}, {"StrangeSessions", say_nothing, unknown}, {"TheSameTree", repeat, {}}};
}

class ChattyReplica : public ::testing::TestWithParam<Chatter> {};

TEST_P(ChattyReplica, IsGivenUpAndItsSequencesMove) {
  ScriptedProposer chatty({});
  ScriptedProposer other({});
  GetParam().start(chatty);
  ProposerPoolOptions options = PoolOptions();
  options.silence_timeout = absl::Seconds(1);
  options.backoff = {.initial = absl::Minutes(5), .max = absl::Minutes(5)};
  const auto pool = MakePool({absl::StrCat(Static(chatty), ",", other.address())}, options);
  ASSERT_TRUE(IsConnected(*pool, 2));
  std::vector<Speaker> speakers;
  for (SequenceId id = 1; id <= 4; ++id) speakers.emplace_back(*pool, id);
  EXPECT_TRUE(Eventually([&] {
    for (Speaker& speaker : speakers) speaker.Step();
    chatty.Push(GetParam().message);
    return pool->GetStatus()[0].num_connected == 1;
  }));
  for (Speaker& speaker : speakers) EXPECT_TRUE(speaker.Regains());
}

INSTANTIATE_TEST_SUITE_P(Kinds, ChattyReplica, ::testing::ValuesIn(Chatters()),
                         [](const auto& info) { return info.param.name; });

TEST(ProposerPool, TheBackoffGrowsForAReplicaThatAnswersOnceAndLeaves) {
  ScriptedProposer proposer({});
  proposer.SetBehaviour(Behaviour::kAnswerAndLeave);
  ProposerPoolOptions options = PoolOptions();
  options.backoff = {.initial = absl::Milliseconds(50), .max = absl::Hours(1)};
  const absl::Time start = SteadyNow();
  const auto pool = MakePool({Static(proposer)}, options);
  Speaker speaker(*pool, 1);
  EXPECT_TRUE(Eventually([&] {
    speaker.Step();
    return pool->GetCounters()[0].num_connects >= 6;
  }));
  EXPECT_GE(pool->GetCounters()[0].num_trees, 4);
  // The backoff delays between attempts are 50, 100, 200, 400 and 800 ms, and at least half of each.
  EXPECT_GE(SteadyNow() - start, absl::Milliseconds(775));
}

// Else a proposer that restarts each night would be away for seconds after some nights without a request.
TEST(ProposerPool, TheBackoffStartsAnewAfterAStreamThatLastedAndOwedNothing) {
  ScriptedProposer proposer({});
  std::atomic<int64_t> num_seconds = 0;
  ProposerPoolOptions options = PoolOptions();
  options.backoff = {.initial = absl::Seconds(1), .max = absl::Minutes(10)};
  options.silence_timeout = absl::Milliseconds(50);  // a quarter of it is the real time between looks at the clock
  options.now = [&] { return absl::UnixEpoch() + absl::Seconds(num_seconds.load()); };
  const auto pool = MakePool({Static(proposer)}, options);
  const auto connects_soon = [&] {
    const absl::Time end = absl::Now() + absl::Milliseconds(500);
    while (pool->GetStatus()[0].num_connected == 0 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(2));
    return pool->GetStatus()[0].num_connected > 0;
  };
  for (int night = 1; night <= 6; ++night) {
    ASSERT_TRUE(IsConnected(*pool)) << "night " << night;
    num_seconds += 600;
    proposer.Kill();
    ASSERT_TRUE(IsConnected(*pool, 0));
    proposer.Start();
    // A busy machine may fail the first attempt, and the second one comes two seconds later.
    for (int second = 0; second < 3 && !connects_soon(); ++second) num_seconds += 1;
  }
}

TEST(ProposerPool, AFloodOfMessagesIsReadAtALimitedRate) {
  ScriptedProposer proposer({});
  ProposerPoolOptions options = PoolOptions();
  options.pace = {.messages_per_second = 5000};
  const auto pool = MakePool({Static(proposer)}, options);
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 1);
  ASSERT_TRUE(speaker.Regains());
  const uint64_t num_before = pool->GetCounters()[0].num_received_bytes;
  const absl::Time start = SteadyNow();
  v1::ProposeResponse message;
  message.add_unknown_session_ids(4711);
  constexpr int kNumMessages = 3000;
  for (int i = 0; i < kNumMessages; ++i) proposer.Push(message);
  EXPECT_TRUE(Eventually(
      [&] { return pool->GetCounters()[0].num_received_bytes - num_before >= kNumMessages * message.ByteSizeLong(); }));
  EXPECT_GE(SteadyNow() - start, absl::Milliseconds(kNumMessages / 5 - 110));  // a burst of a tenth of a second is free
  EXPECT_TRUE(speaker.Regains());
  EXPECT_EQ(pool->GetCounters()[0].num_breaks, 0);
}

TEST(ProposerPool, AMessageWithTooManySessionsBreaksOnlyTheStream) {
  ScriptedProposer proposer({});
  ProposerPoolOptions options = PoolOptions();
  options.max_message_sessions = 100;
  const auto pool = MakePool({Static(proposer)}, options);
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 1);
  ASSERT_TRUE(speaker.Regains());
  v1::ProposeResponse message;
  for (uint64_t id = 1; id <= 100; ++id) message.add_refused_session_ids(1000 + id);
  proposer.Push(message);
  ASSERT_TRUE(speaker.Regains());
  EXPECT_EQ(pool->GetCounters()[0].num_breaks, 0);
  message.add_unknown_session_ids(4711);
  proposer.Push(message);
  EXPECT_TRUE(Eventually([&] { return pool->GetCounters()[0].num_breaks == 1; }));
  EXPECT_TRUE(speaker.Regains());
}

TEST(ProposerPool, TimersFollowTheClockThatIsGiven) {
  const auto is_steady = [](const Clock& clock) {
    const auto* function = clock.target<absl::Time (*)()>();
    return function != nullptr && *function == &SteadyNow;
  };
  EXPECT_TRUE(is_steady(ProposerPoolOptions().now));
  EXPECT_TRUE(is_steady(EngineParts().now));
  ScriptedProposer proposer({});
  proposer.SetBehaviour(Behaviour::kSilent);
  std::atomic<int64_t> ms = 0;
  ProposerPoolOptions options = PoolOptions();
  options.silence_timeout = absl::Milliseconds(50);
  options.now = [&] { return absl::UnixEpoch() + absl::Milliseconds(ms.load()); };
  const auto pool = MakePool({Static(proposer)}, options);
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 1);
  speaker.Step();
  ASSERT_TRUE(Eventually([&] { return !proposer.Requests().empty(); }));
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_EQ(pool->GetCounters()[0].num_breaks, 0);
  EXPECT_TRUE(Eventually([&] {
    ++ms;  // by little at a time, or the process seems to have stood still
    return pool->GetCounters()[0].num_breaks == 1;
  }));
}

TEST(AnswerPace, CountsMessagesSessionsAndBytesAndLetsABurstPass) {
  const AnswerPace::Limits limits{.messages_per_second = 100,
                                  .sessions_per_second = 500,
                                  .bytes_per_second = 1000,
                                  .burst = absl::Milliseconds(50)};
  AnswerPace pace;
  absl::Time now = absl::UnixEpoch();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(pace.Count({1, 1}, limits, now), absl::ZeroDuration());
  EXPECT_EQ(pace.Count({1, 1}, limits, now), absl::Milliseconds(10));
  EXPECT_EQ(pace.Count({100, 1}, limits, now), absl::Milliseconds(110)) << "its bytes cost more than its number";
  EXPECT_EQ(pace.Count({1, 100}, limits, now), absl::Milliseconds(310)) << "and sessions more than bytes";
  now += absl::Hours(1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(pace.Count({1, 1}, limits, now), absl::ZeroDuration());
  EXPECT_GT(pace.Count({1, 1}, limits, now), absl::ZeroDuration()) << "an hour of silence allows no larger burst";
}

TEST(ProposerPool, ALostHostIsNoticedWithoutQuestions) {
  ScriptedProposer proposer({});
  TcpRelay relay(PortOf(proposer.address()));
  ProposerPoolOptions options = PoolOptions();
  options.silence_timeout = absl::Minutes(5);
  options.keepalive_time = options.keepalive_timeout = absl::Milliseconds(300);
  const auto pool = MakePool({"ngram=static:" + relay.address()}, options);
  ASSERT_TRUE(IsConnected(*pool));
  absl::SleepFor(absl::Seconds(1));  // time for some pings, which are all answered
  EXPECT_EQ(pool->GetCounters()[0].num_breaks, 0);
  relay.Freeze();
  EXPECT_TRUE(IsConnected(*pool, 0));
  EXPECT_EQ(pool->GetCounters()[0].num_breaks, 1);
}

// TCP sends lost packets again after pauses that double. So a connection that has lost some stays silent for long after
// the network has healed, and only a new one works.
TEST(ProposerPool, AfterSilenceANewConnectionIsUsed) {
  ScriptedProposer proposer({});
  TcpRelay relay(PortOf(proposer.address()));
  ProposerPoolOptions options = PoolOptions();
  options.silence_timeout = options.connect_timeout = options.describe_timeout = absl::Milliseconds(300);
  const auto pool = MakePool({"ngram=static:" + relay.address()}, options);
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 1);
  ASSERT_TRUE(speaker.Regains());
  relay.Freeze();
  speaker.Step();
  ASSERT_TRUE(IsConnected(*pool, 0));
  absl::SleepFor(absl::Seconds(1));  // attempts on new connections, which are lost as well
  relay.Heal();
  EXPECT_TRUE(speaker.Regains());
}

// Only broken streams and wrong descriptions have a long backoff.
TEST(ProposerPool, AnAbsentReplicaIsTriedAgainSoon) {
  ScriptedProposer proposer({});
  proposer.Kill();
  ProposerPoolOptions options = PoolOptions();
  options.backoff = {.initial = absl::Minutes(5), .max = absl::Minutes(5)};
  const auto pool = MakePool({Static(proposer)}, options);
  absl::SleepFor(absl::Milliseconds(300));  // some attempts fail
  proposer.Start();
  EXPECT_TRUE(IsConnected(*pool));
}

// A pool whose only proposer has stopped reading, and a sequence that the proposer knows.
class UnreadProposerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(IsConnected(*pool_));
    speaker_.emplace(*pool_, 1);
    speaker_->Step();
    ASSERT_TRUE(speaker_->GetsATree());
    proposer_.SetBehaviour(Behaviour::kNeverRead);
    speaker_->Step();  // the peer's pending read still gets this message
  }
  // Opens sequences of about 13 MB together, far more than sockets and windows hold. Returns the longest time of one
  // step.
  absl::Duration OpenFillers() {
    absl::Duration longest;
    for (SequenceId id = kFirstFiller; id < kEndOfFillers; ++id) {
      const absl::Time start = absl::Now();
      Speaker filler(*pool_, id, 100'000);
      filler.Step();
      speaker_->Step();
      pool_->TakeProposals(absl::ZeroDuration());
      longest = std::max(longest, absl::Now() - start);
    }
    return longest;
  }
  uint64_t NumSentBytes() const { return pool_->GetCounters()[0].num_sent_bytes; }
  // True once all windows and buffers are full.
  bool IsStalled() const {
    return Eventually([&] {
      const uint64_t before = NumSentBytes();
      absl::SleepFor(absl::Milliseconds(100));
      return NumSentBytes() == before;
    });
  }
  // True once a tree for the sequence's newest position has come.
  bool GetsTheNewestTree() {
    return Eventually([&] {
      for (const Proposal& proposal : pool_->TakeProposals(absl::Milliseconds(20))) {
        if (proposal.tree.position == speaker_->num_tokens()) return true;
      }
      return false;
    });
  }

  static constexpr SequenceId kFirstFiller = 100, kEndOfFillers = 164;
  ScriptedProposer proposer_{{}};
  const std::unique_ptr<ProposerPool> pool_ = MakePool({Static(proposer_)}, PatientOptions());
  std::optional<Speaker> speaker_;

 private:
  static ProposerPoolOptions PatientOptions() {
    ProposerPoolOptions options = PoolOptions();
    options.silence_timeout = absl::Minutes(5);
    return options;
  }
};

TEST_F(UnreadProposerTest, NeverBlocksTheEngine) { EXPECT_LT(OpenFillers(), absl::Seconds(2)); }

// 200 steps against a stalled peer become one advance, and sequences that closed unsent are never sent. So the peer
// gets 4 bytes per token, and a few bytes for the closes of sessions that it knows.
TEST_F(UnreadProposerTest, ReceivesAllTokensLaterInOneSmallMessage) {
  OpenFillers();
  ASSERT_TRUE(IsStalled());
  const uint64_t num_stalled_bytes = NumSentBytes();
  for (int step = 0; step < 200; ++step) speaker_->Step();
  for (SequenceId id = kFirstFiller; id < kEndOfFillers; ++id) pool_->Close(id);
  pool_->Flush({});
  EXPECT_EQ(NumSentBytes(), num_stalled_bytes);
  proposer_.SetBehaviour(Behaviour::kAnswer);
  ASSERT_TRUE(GetsTheNewestTree());
  EXPECT_LT(NumSentBytes() - num_stalled_bytes, 264 * 4 + 64 * 8 + 100);
  EXPECT_TRUE(Eventually([&] { return proposer_.Mirrors().size() == 1; }));
  EXPECT_EQ(proposer_.Mirrors()[0].token_ids.size(), speaker_->num_tokens());
  EXPECT_THAT(proposer_.Breaches(), IsEmpty());
}

TEST(ProposerPool, APeerThatNeverReadsIsDisconnected) {
  ScriptedProposer stuck({});
  ScriptedProposer other({});
  ProposerPoolOptions options = PoolOptions();
  options.silence_timeout = absl::Seconds(1);
  options.backoff = {.initial = absl::Minutes(5), .max = absl::Minutes(5)};
  const auto pool = MakePool({absl::StrCat(Static(stuck), ",", other.address())}, options);
  ASSERT_TRUE(IsConnected(*pool, 2));
  stuck.SetBehaviour(Behaviour::kNeverRead);
  std::vector<Speaker> speakers;
  for (SequenceId id = 1; id <= 2; ++id) speakers.emplace_back(*pool, id);
  for (Speaker& speaker : speakers) EXPECT_TRUE(speaker.Regains());
  EXPECT_EQ(other.Mirrors().size(), 2);
}

}  // namespace
}  // namespace foretoken::verifier
