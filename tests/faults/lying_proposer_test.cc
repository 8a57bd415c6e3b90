// SPDX-License-Identifier: Apache-2.0
// A verifier process whose only proposer lies, is always wrong, or is late. If this test fails, a faulty proposer
// changes a client's tokens or stalls its streams, or speculation does not return after the proposer recovers.
#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/quiet_levels.h"
#include "tests/faults/step_waits.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/fakes/lies.h"
#include "tests/testing/fakes/scripted_proposer.h"

namespace foretoken {
namespace {

using testing::ScriptedProposer;
using Tokens = std::vector<uint32_t>;

constexpr int kNumRequests = 6;  // different requests; a load repeats them
constexpr uint32_t kNumTokens = 4096;
// Some lies are messages of megabytes. The allocator of the verifier keeps the room that they took: 27 MiB here.
constexpr int64_t kMaxLieBytes = int64_t{64} << 20;

class LyingProposer : public ::testing::Test {
 protected:
  // Generates the output of each request with speculation off.
  void SetUp() override {
    StreamLoad plain(client_,
                     {.mode = v1::SPECULATION_MODE_OFF, .num_requests = kNumRequests, .num_distinct = kNumRequests});
    ASSERT_TRUE(WaitUntil([&] { return plain.num_tokens() >= kNumRequests * kRequestTokens; }));
    said_ = plain.Outputs();
    for (const auto& [index, tokens] : said_) {
      v1::TokenizeRequest request;
      request.set_text(RepetitiveRequest(index).text());
      const auto prompt = client_.Tokenize(request);
      ASSERT_TRUE(prompt.ok()) << prompt.status();
      Tokens text(prompt->token_ids().begin(), prompt->token_ids().end());
      text.insert(text.end(), tokens.begin(), tokens.end());
      texts_.push_back(std::move(text));
    }
    ASSERT_EQ(texts_.size(), kNumRequests);
    TellTheTruth();
  }

  // A chain of the tokens that the model will emit, from the known outputs.
  v1::TokenTree Truth(const ScriptedProposer::Mirror& mirror) const {
    v1::TokenTree tree;
    tree.set_session_id(mirror.session_id);
    tree.set_position(mirror.token_ids.size());
    const Tokens& context = mirror.token_ids;
    for (const Tokens& text : texts_) {
      if (text.size() <= context.size() || !std::equal(context.begin(), context.end(), text.begin())) continue;
      const size_t end = std::min<size_t>(text.size(), context.size() + std::clamp(mirror.node_budget, 2u, 16u));
      for (size_t i = context.size(); i < end; ++i) {
        tree.add_token_ids(text[i]);
        tree.add_parents(tree.parents_size() - 1);
        tree.add_chances(.9f);
      }
      break;
    }
    return tree;
  }

  void TellTheTruth() {
    proposer_.SetTree([this](const auto& mirror) { return Truth(mirror); });
  }
  void Tell(const testing::Lie& lie) {
    proposer_.SetTree([this, lie](const auto& mirror) {
      v1::TokenTree tree = Truth(mirror);
      if (tree.token_ids_size() >= 2) lie.tell(tree);
      return tree;
    });
  }

  void ExpectTheTruth(StreamLoad& load) {
    for (const auto& [index, tokens] : load.Outputs()) EXPECT_EQ(tokens, said_.at(index % kNumRequests)) << index;
  }
  double BadTrees() const { return verifier_.Metric("foretoken_proposer_bad_trees_total"); }
  double Trees() const { return verifier_.Metric("foretoken_proposer_trees_total"); }
  double Breaks() const { return verifier_.Metric("foretoken_proposer_breaks_total"); }

  ScriptedProposer proposer_{{.keeps_requests = false}};
  ServiceProcess verifier_{"foretoken_verifier",
                           {"--proposer=ngram=static:" + proposer_.address(), "--allow_step_reports"}};
  client::GenerationClient client_ = Connect(verifier_);
  std::map<int, Tokens> said_;  // outputs by request
  std::vector<Tokens> texts_;   // prompts with their outputs
};

class EveryLie : public LyingProposer, public ::testing::WithParamInterface<testing::Lie> {};

TEST_P(EveryLie, LeavesTheModelsTokens) {
  StreamLoad load(client_, {.num_streams = 2, .num_distinct = kNumRequests});
  ASSERT_TRUE(load.AcceptsMore(20)) << "the test proves nothing: right guesses are not accepted";
  const QuietLevels levels({&verifier_});
  Tell(GetParam());
  EXPECT_TRUE(WaitUntil([&] { return BadTrees() >= 8 && Breaks() > 0; })) << "a wrong guess was accepted";
  EXPECT_TRUE(load.Continues());
  TellTheTruth();
  EXPECT_TRUE(load.AcceptsMore(20)) << "after the lie";
  ExpectTheTruth(load);
  levels.ExpectBack(kMaxLieBytes);
}

INSTANTIATE_TEST_SUITE_P(Lies, EveryLie, ::testing::ValuesIn(testing::Lies(kNumTokens)),
                         [](const auto& info) { return info.param.name; });

TEST_F(LyingProposer, AMessageAboveTheLimitIsRefused) {
  StreamLoad load(client_, {.num_streams = 2, .num_distinct = kNumRequests});
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier_});
  const double num_breaks = Breaks();
  v1::ProposeResponse huge;
  for (uint64_t i = 0; i < 1'000'000; ++i) huge.add_refused_session_ids(1'000'000'000 + i);
  proposer_.Push(huge);
  EXPECT_TRUE(WaitUntil([&] { return Breaks() > num_breaks; }));
  EXPECT_TRUE(load.AcceptsMore()) << "after it";
  ExpectTheTruth(load);
  levels.ExpectBack();
}

// The answer takes two bytes per session on the wire, and two hundred after parsing.
TEST_F(LyingProposer, AnAnswerThatWouldGrowInParsingIsRefused) {
  StreamLoad load(client_, {.num_streams = 2, .num_distinct = kNumRequests});
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier_});
  const double num_breaks = Breaks();
  v1::ProposeResponse many;
  for (int i = 0; i < 300'000; ++i) many.add_trees();
  proposer_.Push(many);
  EXPECT_TRUE(WaitUntil([&] { return Breaks() > num_breaks; }));
  EXPECT_TRUE(WaitUntil([&] { return absl::StrContains(verifier_.Log(), "expected at most 262144"); }));
  EXPECT_TRUE(load.AcceptsMore()) << "after it";
  ExpectTheTruth(load);
  levels.ExpectBack();
}

TEST_F(LyingProposer, WrongTreesChangeNoTokenAndSpeculationReturns) {
  StreamLoad load(client_, {.mode = v1::SPECULATION_MODE_AUTO, .num_streams = 2, .num_distinct = kNumRequests});
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier_});
  const double num_trees = Trees();
  Tell({.name = "Wrong", .tell = [](v1::TokenTree& tree) {
          for (uint32_t& token_id : *tree.mutable_token_ids()) token_id = (token_id + 1) % kNumTokens;
        }});
  EXPECT_TRUE(WaitUntil([&] { return Trees() >= num_trees + 100; }));
  EXPECT_TRUE(load.Continues());
  TellTheTruth();
  EXPECT_TRUE(load.AcceptsMore()) << "after it";
  EXPECT_EQ(BadTrees(), 0);
  EXPECT_EQ(Breaks(), 0);
  ExpectTheTruth(load);
  levels.ExpectBack();
}

// Trees that come many steps late are about positions that are committed long before.
TEST_F(LyingProposer, ASlowProposerStallsNoStreamAndIsKept) {
  StepWaits waits;
  StreamLoad load(client_, waits.Watch({.num_streams = 1, .num_distinct = kNumRequests}));
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier_});
  const absl::Time slow_at = absl::Now();
  proposer_.SetDelay(absl::Milliseconds(200));
  absl::SleepFor(absl::Seconds(6));  // longer than the verifier's limit for silence
  EXPECT_TRUE(load.Continues());
  const absl::Time fast_at = absl::Now();
  proposer_.SetDelay(absl::ZeroDuration());
  EXPECT_TRUE(load.AcceptsMore()) << "after it";
  EXPECT_EQ(Breaks(), 0) << "it answered all the time: " << verifier_.Log();
  ExpectTheTruth(load);
  levels.ExpectBack();

  waits.ExpectThatNoneIsTooLong();
  EXPECT_GT(Summarise(load.gaps(), slow_at, fast_at).num_gaps, 100);
}

}  // namespace
}  // namespace foretoken
