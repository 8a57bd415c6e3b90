// SPDX-License-Identifier: Apache-2.0
// If these tests fail, the suffix proposer misses repetitions, states wrong chances, or shows one tenant another's
// text.
#include "proposer_service/suffix/suffix.h"

#include <random>
#include <thread>

#include "common/speculation/match_confidence.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/suffix/suffix_memory.h"
#include "tests/testing/cases/tree_columns.h"

namespace foretoken::proposer {
namespace {

using speculation::kRootParent;
using speculation::TokenTree;
using testing::ChanceOfRootChild;
using ::testing::ElementsAre;
using testing::FirstChain;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TokenTree Propose(SuffixProposer& proposer, Session& session, int32_t node_budget) {
  const ProposalRequest request = {&session, node_budget};
  return proposer.Propose({&request, 1}).front();
}

std::unique_ptr<Session> Open(SuffixProposer& proposer, const std::vector<int32_t>& context,
                              const std::string& tenant = "") {
  std::unique_ptr<Session> session = proposer.Open({.tenant = tenant});
  session->Append(context);
  session->Want({});
  return session;
}

TokenTree ProposeAfter(SuffixProposer& proposer, const std::vector<int32_t>& context, int32_t node_budget,
                       const std::string& tenant = "") {
  return Propose(proposer, *Open(proposer, context, tenant), node_budget);
}

// Opens and ends a session with one output and no prompt.
void Finish(SuffixProposer& proposer, const std::vector<int32_t>& output, const std::string& tenant = "") {
  Open(proposer, {}, tenant)->Append(output);
  proposer.WaitUntilLearned();
}

std::vector<int32_t> Range(int32_t begin, int32_t end) {
  std::vector<int32_t> tokens;
  for (int32_t i = begin; i < end; ++i) tokens.push_back(i);
  return tokens;
}

std::vector<int32_t> RandomText(std::mt19937& random, int32_t num_ids, size_t length) {
  std::vector<int32_t> text(length);
  for (int32_t& token_id : text) token_id = static_cast<int32_t>(random() % num_ids);
  return text;
}

// The verifier fills in TreeNode::proposers, so a proposer must leave it empty.
absl::Status CheckRules(TokenTree tree, int32_t num_tokens, int32_t node_budget) {
  for (speculation::TreeNode& node : tree.nodes) {
    if (node.proposers != 0) return absl::InternalError("the proposer filled in TreeNode::proposers");
    node.proposers = 1;
  }
  return speculation::Validate(tree, num_tokens, node_budget);
}

TEST(Suffix, ContinuesTheSequencesOwnRepetition) {
  SuffixProposer proposer({});
  const TokenTree tree = ProposeAfter(proposer, {1, 2, 3, 4, 5, 6, 7, 1, 2, 3}, 4);
  EXPECT_THAT(FirstChain(tree), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(tree.position, 10);
}

TEST(Suffix, HasNoGuessWithoutARepetition) {
  SuffixProposer proposer({});
  EXPECT_THAT(ProposeAfter(proposer, {1, 2, 3, 4}, 8).nodes, IsEmpty());
  EXPECT_THAT(ProposeAfter(proposer, {}, 8).nodes, IsEmpty());
}

TEST(Suffix, ContinuesAFinishedOutput) {
  SuffixProposer proposer({});
  Finish(proposer, Range(100, 200));
  EXPECT_THAT(FirstChain(ProposeAfter(proposer, {7, 8, 120, 121, 122}, 6)), ElementsAre(123, 124, 125, 126, 127, 128));
}

TEST(Suffix, ASessionThatIsStillOpenTeachesNothing) {
  SuffixProposer proposer({});
  const std::unique_ptr<Session> session = Open(proposer, {});
  session->Append(Range(100, 200));
  proposer.WaitUntilLearned();
  EXPECT_THAT(ProposeAfter(proposer, {120, 121}, 6).nodes, IsEmpty());
}

TEST(Suffix, PromptsAreNotLearned) {
  SuffixProposer proposer({});
  Open(proposer, Range(0, 100))->Append(Range(500, 520));
  proposer.WaitUntilLearned();
  EXPECT_THAT(ProposeAfter(proposer, {50, 51, 52}, 6).nodes, IsEmpty());
  EXPECT_THAT(FirstChain(ProposeAfter(proposer, {97, 98, 99}, 2)), ElementsAre(500, 501))
      << "the beginning of the output is learned";
}

TEST(Suffix, ASequenceThatIsOpenedAgainIsNotLearnedTwice) {
  SuffixProposer proposer({});
  Open(proposer, Range(0, 50))->Append(Range(50, 80));
  // The sequence was preempted, so its earlier output comes again as context. Another sequence continues otherwise from
  // 60.
  Open(proposer, Range(0, 80))->Append(Range(80, 100));
  std::vector<int32_t> other = Range(52, 61);
  other.push_back(999);
  Finish(proposer, other);
  const TokenTree tree = ProposeAfter(proposer, {57, 58, 59, 60}, 2);
  EXPECT_FLOAT_EQ(ChanceOfRootChild(tree, 61), ChanceOfRootChild(tree, 999)) << "each occurred once";
  EXPECT_THAT(FirstChain(ProposeAfter(proposer, {84, 85, 86}, 2)), ElementsAre(87, 88));
}

TEST(Suffix, TenantsNeverSeeEachOthersText) {
  SuffixProposer proposer({});
  Finish(proposer, Range(100, 200), "a");
  EXPECT_THAT(ProposeAfter(proposer, {120, 121, 122}, 8, "b").nodes, IsEmpty());
  EXPECT_THAT(ProposeAfter(proposer, {120, 121, 122}, 8, "").nodes, IsEmpty());
  EXPECT_EQ(ProposeAfter(proposer, {120, 121, 122}, 8, "a").num_nodes(), 8);
  // The same after the tenant has outputs of its own.
  Finish(proposer, Range(0, 20), "b");
  EXPECT_THAT(ProposeAfter(proposer, {120, 121, 122}, 8, "b").nodes, IsEmpty());
}

TEST(Suffix, TheOldestOutputsOfAnyTenantAreForgotten) {
  SuffixProposer proposer({.shared_tokens = 2000});
  Finish(proposer, Range(100, 600), "a");
  Finish(proposer, Range(1000, 1500), "b");
  EXPECT_EQ(ProposeAfter(proposer, {120, 121, 122}, 8, "a").num_nodes(), 8);
  for (int32_t i = 0; i < 4; ++i) Finish(proposer, Range(2000 + 500 * i, 2490 + 500 * i), "b");
  EXPECT_THAT(ProposeAfter(proposer, {120, 121, 122}, 8, "a").nodes, IsEmpty());
  EXPECT_THAT(ProposeAfter(proposer, {1020, 1021, 1022}, 8, "b").nodes, IsEmpty());
  EXPECT_EQ(ProposeAfter(proposer, {3020, 3021, 3022}, 8, "b").num_nodes(), 8);
}

// The test finds the longest match of the context's end in the output, position by position, and counts its
// continuations.
TEST(Suffix, ChancesAreCountRatiosTimesConfidence) {
  int num_checked = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    SuffixProposer proposer({.max_depth = 12});
    const std::vector<int32_t> output = RandomText(random, 4, 400);
    Finish(proposer, output);
    std::vector<int32_t> context = {100, 101};
    context.insert(context.end(), output.begin() + 50, output.begin() + 51 + seed % 4);  // one to four tokens
    // The context repeats nothing of its own, so only the output counts.
    size_t length = 0;
    std::map<int32_t, int32_t> next;
    int32_t num_occurrences = 0;
    for (size_t l = context.size() - 2; l > 0 && length == 0; --l) {
      for (size_t i = 0; i + l <= output.size(); ++i) {
        if (!std::equal(context.end() - static_cast<ptrdiff_t>(l), context.end(),
                        output.begin() + static_cast<ptrdiff_t>(i)))
          continue;
        length = l;
        ++num_occurrences;
        if (i + l < output.size()) ++next[output[i + l]];
      }
    }
    std::vector<int32_t> unrepeated(context.begin(), context.end());
    std::sort(unrepeated.begin(), unrepeated.end());
    if (std::adjacent_find(unrepeated.begin(), unrepeated.end()) != unrepeated.end()) continue;
    const TokenTree tree = ProposeAfter(proposer, context, 64);
    const float confidence = speculation::MatchConfidence().Estimate(static_cast<int32_t>(length));
    SCOPED_TRACE(length);
    for (const auto& [token_id, count] : next) {
      EXPECT_NEAR(ChanceOfRootChild(tree, token_id), confidence * count / num_occurrences, 1e-5);
      ++num_checked;
    }
  }
  EXPECT_GT(num_checked, 60);
}

TEST(Suffix, TheLongerMatchGetsItsChanceFirst) {
  SuffixProposer proposer({});
  std::vector<int32_t> output = Range(100, 120);
  output.insert(output.end(), {1, 2, 3, 4, 40});
  Finish(proposer, output);
  // In the sequence itself, the token 50 followed 4.
  const TokenTree tree = ProposeAfter(proposer, {4, 50, 9, 1, 2, 3, 4}, 8);
  ASSERT_GT(tree.num_nodes(), 1);
  EXPECT_EQ(tree.nodes[0].token_id, 40);
  EXPECT_GT(ChanceOfRootChild(tree, 50), 0) << "the other source is a branch";
}

TEST(Suffix, FrequentContinuationsComeFirst) {
  SuffixProposer proposer({});
  const auto say = [&](int32_t last) {
    std::vector<int32_t> output = Range(0, 10);
    output.push_back(last);
    Finish(proposer, output);
  };
  for (int32_t i = 0; i < 3; ++i) say(77);
  say(88);
  const TokenTree tree = ProposeAfter(proposer, {5, 6, 7, 8, 9}, 8);
  EXPECT_NEAR(ChanceOfRootChild(tree, 77) / ChanceOfRootChild(tree, 88), 3, 1e-4);
}

TEST(Suffix, DepthAdaptsToTheMatch) {
  SuffixProposer proposer({.depth_per_match = 2, .min_path_chance = 0});
  Finish(proposer, Range(100, 200));
  EXPECT_EQ(ProposeAfter(proposer, {150}, 64).num_nodes(), 2);
  EXPECT_EQ(ProposeAfter(proposer, {149, 150}, 64).num_nodes(), 4);
  EXPECT_EQ(ProposeAfter(proposer, Range(140, 151), 64).num_nodes(), 22);
}

TEST(Suffix, LoopsArePredictedBeyondTheContext) {
  SuffixProposer proposer({});
  for (const int32_t period : {1, 2, 3, 7, 50}) {
    std::vector<int32_t> tokens(70 + 2 * period);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % period);
    const std::vector<int32_t> chain = FirstChain(ProposeAfter(proposer, tokens, 64));
    ASSERT_GE(chain.size(), 16) << "period " << period;
    for (size_t i = 0; i < chain.size(); ++i) EXPECT_EQ(chain[i], (tokens.size() + i) % period) << "period " << period;
  }
}

TEST(Suffix, LearnsTheHitRateOfItsMatches) {
  std::mt19937 random(4);
  SuffixProposer proposer({});
  const std::unique_ptr<Session> good = Open(proposer, {});
  const std::unique_ptr<Session> bad = Open(proposer, {});
  for (int32_t i = 0; i < 400; ++i) {
    const int32_t looped = i % 9;
    const int32_t thrown = static_cast<int32_t>(random() % 60);
    good->Append({&looped, 1});
    bad->Append({&thrown, 1});
  }
  const TokenTree sure = Propose(proposer, *good, 1);
  const TokenTree unsure = Propose(proposer, *bad, 1);
  ASSERT_EQ(sure.num_nodes(), 1);
  EXPECT_GT(sure.nodes[0].chance, 0.9f);
  if (unsure.num_nodes() > 0) {
    EXPECT_LT(unsure.nodes[0].chance, 0.3f);
  }
}

TEST(Suffix, TreesKeepTheRulesOnRandomText) {
  std::mt19937 random(5);
  SuffixProposer proposer({.max_depth = 8, .min_path_chance = 0, .shared_tokens = 4000});
  for (int32_t round = 0; round < 200; ++round) {
    const int32_t num_ids = 1 + static_cast<int32_t>(random() % 20);
    const std::unique_ptr<Session> session = Open(proposer, RandomText(random, num_ids, random() % 200));
    for (int32_t i = 0; i < 20; ++i) {
      session->Append(RandomText(random, num_ids, random() % 5));
      const int32_t node_budget = static_cast<int32_t>(random() % 100);
      const TokenTree tree = Propose(proposer, *session, node_budget);
      EXPECT_EQ(tree.position, session->position());
      ASSERT_EQ(CheckRules(tree, 20, node_budget), absl::OkStatus());
      std::vector<float> sums(tree.num_nodes() + 1);
      for (int32_t n = 0; n < tree.num_nodes(); ++n) sums[tree.nodes[n].parent + 1] += tree.nodes[n].chance;
      for (const float sum : sums) EXPECT_LT(sum, 1.0001f);
    }
  }
}

TEST(Suffix, PiecesAndSingleTokensMakeTheSameTree) {
  std::mt19937 random(6);
  SuffixProposer proposer({});
  const std::vector<int32_t> tokens = RandomText(random, 5, 300);
  const std::unique_ptr<Session> session = Open(proposer, {});
  for (const int32_t token : tokens) session->Append({&token, 1});
  const TokenTree tree = Propose(proposer, *session, 40);
  const TokenTree whole = ProposeAfter(proposer, tokens, 40);
  EXPECT_EQ(tree.nodes, whole.nodes);
}

TEST(Suffix, OpenSessionsFindNewlyLearnedOutputs) {
  SuffixProposer proposer({});
  const std::unique_ptr<Session> session = Open(proposer, Range(100, 130));
  EXPECT_THAT(Propose(proposer, *session, 4).nodes, IsEmpty());
  Finish(proposer, Range(100, 200));
  // After these tokens the session has searched its whole match again.
  for (int32_t token_id = 130; token_id < 150; ++token_id) session->Append({&token_id, 1});
  EXPECT_THAT(FirstChain(Propose(proposer, *session, 4)), ElementsAre(150, 151, 152, 153));
}

TEST(Suffix, OpenSessionsSearchTheirLongestMatchInNewlyLearnedOutputs) {
  SuffixProposer proposer({});
  const std::unique_ptr<Session> session = Open(proposer, Range(100, 120));
  // Two outputs have the same 20 tokens. In the first they follow the session's own tokens, in the second other tokens.
  const auto say = [&](std::vector<int32_t> output, int32_t last) {
    const std::vector<int32_t> same = Range(200, 220);
    output.insert(output.end(), same.begin(), same.end());
    output.push_back(last);
    Finish(proposer, output);
  };
  say(Range(100, 120), 1);
  say(Range(300, 320), 2);
  for (int32_t token_id = 200; token_id < 220; ++token_id) session->Append({&token_id, 1});
  EXPECT_THAT(testing::TokenIds(Propose(proposer, *session, 4)), ElementsAre(1));
}

TEST(Suffix, SessionsOnManyThreadsShareOneMemory) {
  SuffixProposer proposer({.max_depth = 16, .shared_tokens = 3000});
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&proposer, t] {
      std::mt19937 random(t);
      const std::string tenant = t % 2 == 0 ? "even" : "odd";
      const int32_t first_id = t % 2 == 0 ? 0 : 1000;
      for (int32_t i = 0; i < 40; ++i) {
        const std::unique_ptr<Session> session = Open(proposer, {first_id}, tenant);
        for (int32_t j = 0; j < 60; ++j) {
          std::vector<int32_t> tokens = RandomText(random, 6, 1 + random() % 3);
          for (int32_t& token_id : tokens) token_id += first_id;
          session->Append(tokens);
          const TokenTree tree = Propose(proposer, *session, 16);
          ASSERT_EQ(CheckRules(tree, 2000, 16), absl::OkStatus());
          for (const speculation::TreeNode& node : tree.nodes) ASSERT_EQ(node.token_id / 1000, first_id / 1000);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Without this bound, a client that chooses tenant names could fill the memory with names.
TEST(Suffix, TheNumberOfOwnersIsBounded) {
  SuffixMemory memory({.max_depth = 8, .max_tokens = 64 * 100});
  const auto owner = [](int32_t i) { return SuffixOwner{.vocabulary = "v", .tenant = std::to_string(i)}; };
  constexpr int32_t kNumOwners = 300;  // of 8 tokens each
  for (int32_t i = 0; i < kNumOwners; ++i) {
    memory.Remember(owner(i), Range(0, 8));
    ASSERT_LE(memory.GetStats().num_owners, 100);
  }
  memory.Remember(owner(kNumOwners - 1), Range(0, 8));
  EXPECT_EQ(memory.GetStats().num_owners, 100);
  const SuffixMemory::Reader reader(memory);
  EXPECT_FALSE(reader.RootOf(owner(0)).has_value()) << "the oldest owner makes room";
  EXPECT_TRUE(reader.RootOf(owner(kNumOwners - 1)).has_value());
}

TEST(Suffix, MetricsCountRememberedAndForgottenTokens) {
  telemetry::Metrics metrics;
  SuffixProposer proposer({.shared_tokens = 2000}, &metrics);
  const auto gauge = [&](const char* name, const char* help) { return metrics.AddGauge(name, help).Value(); };
  const auto tokens = [&] { return gauge("foretoken_suffix_tokens", "Tokens of the remembered outputs."); };
  const auto tenants = [&] { return gauge("foretoken_suffix_tenants", "Tenants with a remembered output."); };
  const auto forgotten = [&] {
    return metrics
        .AddCounter("foretoken_suffix_forgotten_tokens_total", "Tokens of outputs that made room for newer ones.")
        .Value();
  };
  Finish(proposer, Range(0, 300), "a");
  Finish(proposer, Range(0, 200), "b");
  proposer.WaitUntilLearned();
  EXPECT_EQ(tokens(), 500);
  EXPECT_EQ(tenants(), 2);
  EXPECT_EQ(forgotten(), 0);
  EXPECT_EQ(gauge("foretoken_suffix_outputs", "Finished outputs remembered."), 2);
  EXPECT_EQ(gauge("foretoken_suffix_bytes", "Bytes of the suffix tree of the remembered outputs."),
            proposer.num_bytes());
  for (int round = 0; round < 4; ++round) Finish(proposer, Range(1000 * round, 1000 * round + 450), "c");
  proposer.WaitUntilLearned();
  EXPECT_LE(tokens(), 2000);
  EXPECT_EQ(tokens() + forgotten(), 500 + 4 * 450);
  EXPECT_GE(forgotten(), 300);
}

TEST(Suffix, OptionsOutOfRangeAreNamed) {
  EXPECT_TRUE(Validate(SuffixOptions{}).ok());
  EXPECT_THAT(Validate(SuffixOptions{.max_depth = 1}).ToString(), HasSubstr("suffix_max_depth"));
  EXPECT_THAT(Validate(SuffixOptions{.max_depth = 1025}).ToString(), HasSubstr("suffix_max_depth"));
  EXPECT_THAT(Validate(SuffixOptions{.depth_per_match = 0}).ToString(), HasSubstr("suffix_depth_per_match"));
  EXPECT_THAT(Validate(SuffixOptions{.min_path_chance = 1}).ToString(), HasSubstr("suffix_min_path_chance"));
  EXPECT_THAT(Validate(SuffixOptions{.shared_tokens = 3}).ToString(), HasSubstr("suffix_shared_tokens"));
  EXPECT_TRUE(Validate(SuffixOptions{.shared_tokens = 1 << 27}).ok());
  EXPECT_THAT(Validate(SuffixOptions{.shared_tokens = 1 << 28}).ToString(), HasSubstr("suffix_shared_tokens"));
  EXPECT_THAT(Validate(SuffixOptions{.snapshot_interval = absl::ZeroDuration()}).ToString(),
              HasSubstr("suffix_snapshot_interval"));
}

}  // namespace
}  // namespace foretoken::proposer
