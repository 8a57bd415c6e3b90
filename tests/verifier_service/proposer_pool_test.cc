// SPDX-License-Identifier: Apache-2.0
// The pool against scripted proposers over real loopback gRPC.
#include "verifier_service/proposer_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/testing/scripted_proposer.h"

namespace foretoken::verifier {
namespace {

using ::foretoken::testing::ScriptedProposer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Behaviour = ScriptedProposer::Behaviour;

constexpr int32_t kNumTokens = 1'000'000;
constexpr absl::Duration kLong = absl::Seconds(20);  // for what must come; nothing waits so long unless it fails

template <typename Predicate>
bool Eventually(Predicate predicate) {
  for (const absl::Time end = absl::Now() + kLong; absl::Now() < end; absl::SleepFor(absl::Milliseconds(2))) {
    if (predicate()) return true;
  }
  return false;
}

ProposerPoolOptions Options() {
  return {.num_tokens = kNumTokens,
          .vocabulary_fingerprint = "aa",
          .resolve_period = absl::Milliseconds(20),
          .backoff = {.initial = absl::Milliseconds(10), .max = absl::Milliseconds(50)},
          .jitter_seed = 1};
}

std::unique_ptr<ProposerPool> MakePool(const std::vector<std::string>& specs, ProposerPoolOptions options = Options()) {
  std::vector<ProposerSpec> parsed;
  for (const std::string& spec : specs) parsed.push_back(ParseProposerSpec(spec).value());
  return ProposerPool::Create(std::move(parsed), std::move(options)).value();
}

std::string Static(const ScriptedProposer& proposer) { return "ngram=static:" + proposer.address(); }

bool IsConnected(const ProposerPool& pool, int num_replicas = 1) {
  return Eventually([&] { return pool.GetStatus()[0].num_connected == num_replicas; });
}

// An engine of one sequence: it commits a token and wants a tree.
class Speaker {
 public:
  Speaker(ProposerPool& pool, SequenceId id, size_t num_prompt_tokens = 3)
      : pool_(pool), id_(id), num_tokens_(num_prompt_tokens) {
    std::vector<int32_t> prompt(num_prompt_tokens);
    std::iota(prompt.begin(), prompt.end(), 0);
    pool_.Open({.sequence_id = id, .token_ids = prompt});
  }
  void Step(int32_t node_budget = 4) {
    pool_.Advance(id_, std::vector<int32_t>{static_cast<int32_t>(num_tokens_++)}, node_budget);
    pool_.Flush(absl::Milliseconds(1));
  }
  bool GetsATree() {
    return Eventually([&] {
      for (const Proposal& proposal : pool_.TakeProposals(absl::Milliseconds(50))) {
        if (proposal.sequence_id == id_ && proposal.tree.num_nodes() > 0) {
          newest_ = proposal;
          return true;
        }
      }
      return false;
    });
  }
  // Steps until trees are there again.
  bool Regains() {
    return Eventually([&] {
      Step();
      for (const Proposal& proposal : pool_.TakeProposals(absl::Milliseconds(20))) {
        if (proposal.sequence_id == id_ && proposal.tree.position == num_tokens_) return true;
      }
      return false;
    });
  }
  uint64_t num_tokens() const { return num_tokens_; }
  const Proposal& newest() const { return newest_; }

 private:
  ProposerPool& pool_;
  SequenceId id_;
  uint64_t num_tokens_;
  Proposal newest_;
};

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
    EXPECT_THAT(speaker.newest().tree.token_ids, ElementsAre(next, next + 1, next + 2, next + 3));
    EXPECT_THAT(speaker.newest().tree.proposers, ElementsAre(1, 1, 1, 1));
  }
  pool->Close(7);
  pool->Flush(absl::ZeroDuration());
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
  const auto pool = ProposerPool::Create({spec}, Options()).value();
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
  pool->Open({.sequence_id = 2, .token_ids = prompt, .allowed_proposers = {"suffix"}});
  pool->Advance(1, std::vector<int32_t>{3}, 4);
  pool->Advance(2, std::vector<int32_t>{3}, 4);
  pool->Flush(absl::ZeroDuration());
  std::set<std::pair<SequenceId, uint32_t>> seen;
  EXPECT_TRUE(Eventually([&] {
    for (const Proposal& proposal : pool->TakeProposals(absl::Milliseconds(50))) {
      seen.emplace(proposal.sequence_id, proposal.proposer_idx);
      EXPECT_EQ(proposal.tree.proposers.at(0), 1u << proposal.proposer_idx);
    }
    return seen.size() == 3;
  }));
  EXPECT_THAT(seen, ElementsAre(std::pair(1, 0), std::pair(1, 1), std::pair(2, 1)));
}

TEST(ProposerPool, CreateRefusesSpecsThatCannotBe) {
  const ProposerSpec ngram = ParseProposerSpec("ngram=static:127.0.0.1:1").value();
  EXPECT_THAT(std::string(ProposerPool::Create({ngram, ngram}, Options()).status().message()),
              HasSubstr("given twice"));
  EXPECT_THAT(
      std::string(ProposerPool::Create({ParseProposerSpec("ngram,embedded").value()}, Options()).status().message()),
      HasSubstr("no channel"));
  ProposerPoolOptions options = Options();
  options.num_tokens = 0;
  EXPECT_THAT(std::string(ProposerPool::Create({ngram}, options).status().message()), HasSubstr("num_tokens"));
  EXPECT_THAT(std::string(ProposerPool::Create({ParseProposerSpec("prediction=static:127.0.0.1:1").value()}, Options())
                              .status()
                              .message()),
              HasSubstr("that of a request's prediction"));
  std::vector<ProposerSpec> many(32, ngram);
  for (size_t i = 0; i < many.size(); ++i) many[i].method = absl::StrCat("m", i);
  EXPECT_THAT(std::string(ProposerPool::Create(many, Options()).status().message()), HasSubstr("at most 31"));
}

TEST(ProposerPool, AProposerOfAnotherMethodVocabularyOrNeedIsNotUsed) {
  ScriptedProposer other_method({.method = "suffix"});
  ScriptedProposer other_words({.vocabulary_fingerprint = "bb"});
  ScriptedProposer needy({.needed_features = {"hidden.7"}});
  ScriptedProposer same_words({.vocabulary_fingerprint = "aa"});
  const auto pool = MakePool({absl::StrCat("ngram=static:", other_method.address(), ",", other_words.address(), ",",
                                           needy.address(), ",", same_words.address())});
  ASSERT_TRUE(IsConnected(*pool));
  // They are asked again now and then: their replacement may fit.
  for (const ScriptedProposer* proposer : {&other_method, &other_words, &needy}) {
    EXPECT_TRUE(Eventually([&] { return proposer->num_describes() >= 2; }));
    EXPECT_EQ(proposer->num_streams(), 0);
  }
  EXPECT_EQ(same_words.num_streams(), 1);
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
  EXPECT_THAT(proposer.Breaches(), IsEmpty());  // pieces above 64 KiB, gaps
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

TEST(ProposerPool, ASequenceThatAllRefuseIsTakenLaterWithoutTheEngine) {
  ScriptedProposer proposer({});
  proposer.SetBehaviour(Behaviour::kRefuse);
  const auto pool = MakePool({Static(proposer)});
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 1);
  speaker.Step();
  ASSERT_TRUE(Eventually([&] { return proposer.Requests().size() >= 3; }));  // it keeps trying
  proposer.SetBehaviour(Behaviour::kAnswer);
  EXPECT_TRUE(speaker.GetsATree());
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
  proposer.Push(unknown);
  EXPECT_TRUE(speaker.GetsATree());
  EXPECT_EQ(proposer.Mirrors().back().token_ids.size(), speaker.num_tokens());
  EXPECT_THAT(proposer.Breaches(), IsEmpty());
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
  EXPECT_TRUE(speaker.GetsATree());  // the engine did nothing
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

TEST(ProposerPool, ASilentReplicaIsGivenUpAndItsSequencesMove) {
  ScriptedProposer silent({});
  ScriptedProposer other({});
  silent.SetBehaviour(Behaviour::kSilent);
  ProposerPoolOptions options = Options();
  options.silence_timeout = absl::Seconds(1);  // the other one is never so slow
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
  absl::StatusOr<std::vector<std::string>> addresses = std::vector<std::string>{first.address()};
  ProposerPoolOptions options = Options();
  options.resolve = [&](const std::string& name) {
    EXPECT_EQ(name, "proposer:50052");
    absl::MutexLock lock(&mutex);
    return addresses;
  };
  const auto resolve_to = [&](absl::StatusOr<std::vector<std::string>> to) {
    absl::MutexLock lock(&mutex);
    addresses = std::move(to);
  };
  const auto pool = MakePool({"ngram=dns:///proposer:50052"}, options);
  ASSERT_TRUE(IsConnected(*pool, 1));
  Speaker speaker(*pool, 1);
  EXPECT_TRUE(speaker.Regains());
  resolve_to(std::vector<std::string>{first.address(), second.address()});
  EXPECT_TRUE(IsConnected(*pool, 2));
  EXPECT_EQ(first.Mirrors().size(), 1);  // it stays where it is
  resolve_to(absl::UnavailableError("no resolver today"));
  absl::SleepFor(absl::Milliseconds(60));
  EXPECT_TRUE(IsConnected(*pool, 2));  // what is known stays in use
  resolve_to(std::vector<std::string>{second.address()});
  EXPECT_TRUE(Eventually([&] { return first.num_streams() == 0 && second.Mirrors().size() == 1; }));
  EXPECT_TRUE(speaker.Regains());
}

TEST(ResolveName, FindsEveryAddressOfALocalName) {
  const absl::StatusOr<std::vector<std::string>> addresses = ResolveName("127.0.0.1:50052");
  ASSERT_TRUE(addresses.ok()) << addresses.status();
  EXPECT_THAT(*addresses, ElementsAre("ipv4:127.0.0.1:50052"));
  EXPECT_THAT(ResolveName("[::1]:7").value_or(std::vector<std::string>{"none"}), ElementsAre("ipv6:[::1]:7"));
  EXPECT_EQ(ResolveName("nothing").status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status unknown = ResolveName("no name:1").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("no name:1"));
}

struct Lie {
  std::string name;
  std::function<void(v1::TokenTree&)> tell;
};

// Says that every node was sampled from a law of its own, in which it has this probability.
void Sample(float prob, v1::TokenTree& tree) {
  tree.set_draw_method(v1::DRAW_METHOD_SAMPLED);
  tree.mutable_distribution_indices()->Resize(tree.token_ids_size() + 1, -1);
  for (int i = 0; i < tree.token_ids_size(); ++i) {
    v1::SparseDistribution& draft = *tree.add_draft_probs();
    draft.add_token_ids(tree.token_ids(i));
    draft.add_probabilities(prob);
    tree.set_distribution_indices(tree.parents(i) + 1, i);
  }
}

class LyingProposer : public ::testing::TestWithParam<Lie> {};

TEST_P(LyingProposer, IsDroppedCountedAndGivenUpUntilItTellsTheTruth) {
  ScriptedProposer proposer({});
  ProposerPoolOptions options = Options();
  options.max_bad_trees_in_a_row = 3;
  options.max_tree_nodes = 64;
  const auto pool = MakePool({Static(proposer)}, options);
  ASSERT_TRUE(IsConnected(*pool));
  proposer.SetTree([&](const ScriptedProposer::Mirror& mirror) {
    v1::TokenTree tree = ScriptedProposer::CountingTree(mirror);
    tree.set_session_id(mirror.session_id);
    tree.set_position(mirror.token_ids.size());
    GetParam().tell(tree);
    return tree;
  });
  Speaker speaker(*pool, 1);
  EXPECT_TRUE(Eventually([&] {
    speaker.Step();
    EXPECT_THAT(pool->TakeProposals(absl::Milliseconds(5)), IsEmpty());
    return pool->GetCounters()[0].num_breaks >= 1;
  }));
  EXPECT_GE(pool->GetCounters()[0].num_bad_trees, 3);
  EXPECT_EQ(pool->GetCounters()[0].num_trees, 0);
  proposer.SetTree(ScriptedProposer::CountingTree);
  EXPECT_TRUE(speaker.Regains());
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, LyingProposer,
    ::testing::Values(
        Lie{"ForwardParent", [](v1::TokenTree& tree) { tree.set_parents(0, 1); }},
        Lie{"ParentBelowTheRoot", [](v1::TokenTree& tree) { tree.set_parents(1, -2); }},
        Lie{"TokenBeyondTheVocabulary", [](v1::TokenTree& tree) { tree.set_token_ids(1, kNumTokens); }},
        Lie{"TokenBeyondInt32", [](v1::TokenTree& tree) { tree.set_token_ids(1, 0xFFFFFFFFu); }},
        Lie{"NanChance", [](v1::TokenTree& tree) { tree.set_chances(0, std::numeric_limits<float>::quiet_NaN()); }},
        Lie{"ChanceAboveOne", [](v1::TokenTree& tree) { tree.set_chances(0, 2); }},
        Lie{"NoChances", [](v1::TokenTree& tree) { tree.clear_chances(); }},
        Lie{"TwinSiblings",
            [](v1::TokenTree& tree) {
              tree.set_parents(1, -1);
              tree.set_token_ids(1, tree.token_ids(0));
            }},
        Lie{"TooManyNodes",
            [](v1::TokenTree& tree) {
              for (int i = 0; i < 64; ++i) {
                tree.add_token_ids(1);
                tree.add_parents(tree.parents_size() - 1);
                tree.add_chances(1);
              }
            }},
        Lie{"NegativeDraftProb", [](v1::TokenTree& tree) { Sample(-.5f, tree); }},
        Lie{"NanDraftProb", [](v1::TokenTree& tree) { Sample(std::numeric_limits<float>::quiet_NaN(), tree); }},
        Lie{"DraftProbsAboveOne", [](v1::TokenTree& tree) { Sample(1.5f, tree); }},
        Lie{"ChildThatCannotHaveBeenSampled", [](v1::TokenTree& tree) { Sample(0, tree); }},
        Lie{"DraftProbsOfGuesses",
            [](v1::TokenTree& tree) {
              Sample(1, tree);
              tree.set_draw_method(v1::DRAW_METHOD_POINT);
            }},
        Lie{"SessionThatNeverWas", [](v1::TokenTree& tree) { tree.set_session_id(1'000'000); }},
        Lie{"PositionAhead", [](v1::TokenTree& tree) { tree.set_position(tree.position() + 1); }}),
    [](const auto& info) { return info.param.name; });

TEST(ProposerPool, SampledTreesThatTellTheTruthAreTaken) {
  ScriptedProposer proposer({});
  const auto pool = MakePool({Static(proposer)});
  ASSERT_TRUE(IsConnected(*pool));
  proposer.SetTree([&](const ScriptedProposer::Mirror& mirror) {
    v1::TokenTree tree = ScriptedProposer::CountingTree(mirror);
    Sample(.5f, tree);
    return tree;
  });
  Speaker speaker(*pool, 1);
  EXPECT_TRUE(speaker.Regains());
  EXPECT_EQ(pool->GetCounters()[0].num_bad_trees, 0);
}

TEST(ProposerPool, AResponseAboveTheLimitBreaksTheStreamOnly) {
  ScriptedProposer proposer({});
  ProposerPoolOptions options = Options();
  options.max_message_bytes = 4096;
  const auto pool = MakePool({Static(proposer)}, options);
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 1);
  ASSERT_TRUE(speaker.Regains());
  v1::ProposeResponse huge;
  for (uint64_t i = 0; i < 10'000; ++i) huge.add_unknown_session_ids(1000 + i);
  proposer.Push(huge);
  EXPECT_TRUE(Eventually([&] { return pool->GetCounters()[0].num_breaks == 1; }));
  EXPECT_TRUE(speaker.Regains());
}

TEST(ProposerPool, APeerThatNeverReadsNeverBlocksTheEngineAndHearsItAllLater) {
  ScriptedProposer proposer({});
  ProposerPoolOptions options = Options();
  options.silence_timeout = absl::Minutes(5);
  const auto pool = MakePool({Static(proposer)}, options);
  ASSERT_TRUE(IsConnected(*pool));
  Speaker speaker(*pool, 1);
  speaker.Step();
  ASSERT_TRUE(speaker.GetsATree());
  proposer.SetBehaviour(Behaviour::kNeverRead);
  speaker.Step();  // the peer stands in a read; this one it still gets
  absl::Duration longest;
  for (SequenceId id = 100; id < 164; ++id) {  // about 13 MB: far more than sockets and windows hold
    const absl::Time start = absl::Now();
    Speaker filler(*pool, id, 100'000);
    filler.Step();
    speaker.Step();
    pool->TakeProposals(absl::ZeroDuration());
    longest = std::max(longest, absl::Now() - start);
  }
  EXPECT_LT(longest, absl::Seconds(2));
  const auto sent_bytes = [&] { return pool->GetCounters()[0].num_sent_bytes; };
  ASSERT_TRUE(Eventually([&] {  // all windows and buffers are full
    const uint64_t before = sent_bytes();
    absl::SleepFor(absl::Milliseconds(100));
    return sent_bytes() == before;
  }));
  const uint64_t num_stalled_bytes = sent_bytes();
  for (int step = 0; step < 200; ++step) speaker.Step();
  for (SequenceId id = 100; id < 164; ++id) pool->Close(id);
  pool->Flush(absl::ZeroDuration());
  EXPECT_EQ(sent_bytes(), num_stalled_bytes);
  proposer.SetBehaviour(Behaviour::kAnswer);
  ASSERT_TRUE(Eventually([&] {
    for (const Proposal& proposal : pool->TakeProposals(absl::Milliseconds(20))) {
      if (proposal.tree.position == speaker.num_tokens()) return true;
    }
    return false;
  }));
  // 200 steps against a stalled peer became one advance, and what closed unheard was never said: 4 bytes a token, and
  // some for the closes of what was heard.
  EXPECT_LT(sent_bytes() - num_stalled_bytes, 264 * 4 + 64 * 8 + 100);
  EXPECT_TRUE(Eventually([&] { return proposer.Mirrors().size() == 1; }));
  EXPECT_EQ(proposer.Mirrors()[0].token_ids.size(), speaker.num_tokens());
  EXPECT_THAT(proposer.Breaches(), IsEmpty());
}

TEST(ProposerPool, APeerThatNeverReadsIsGivenUp) {
  ScriptedProposer stuck({});
  ScriptedProposer other({});
  ProposerPoolOptions options = Options();
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
