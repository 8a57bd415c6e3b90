// SPDX-License-Identifier: Apache-2.0
// If these tests fail, the n-gram proposer misses repetitions of a text or states wrong chances, and requests lose
// speed.
#include "proposer_service/ngram/ngram.h"

#include <cmath>
#include <random>
#include <set>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proposer_service/ngram/ngram_index.h"
#include "tests/testing/cases/tree_columns.h"

namespace foretoken::proposer {
namespace {

using speculation::TokenTree;
using testing::ChanceOfRootChild;
using ::testing::ElementsAre;
using testing::FirstChain;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TokenTree ProposeAfter(const std::vector<int32_t>& tokens, int32_t node_budget, const NgramOptions& options = {}) {
  NgramProposer proposer(options);
  const std::unique_ptr<Session> session = proposer.Open({});
  session->Append(tokens);
  const ProposalRequest request = {session.get(), node_budget};
  return proposer.Propose({&request, 1}).front();
}

void CheckIntegrity(const TokenTree& tree, int32_t node_budget) {
  ASSERT_LE(tree.num_nodes(), node_budget);
  std::set<std::pair<int32_t, int32_t>> siblings;
  for (int32_t i = 0; i < tree.num_nodes(); ++i) {
    ASSERT_GE(tree.nodes[i].parent, speculation::kRootParent);
    ASSERT_LT(tree.nodes[i].parent, i);
    ASSERT_GT(tree.nodes[i].chance, 0);
    ASSERT_LT(tree.nodes[i].chance, 1);
    ASSERT_TRUE(siblings.insert({tree.nodes[i].parent, tree.nodes[i].token_id}).second)
        << "second child with the same token at node " << i;
  }
}

TEST(Ngram, ContinuesTheEarlierOccurrence) {
  EXPECT_THAT(FirstChain(ProposeAfter({1, 2, 3, 4, 5, 6, 7, 1, 2, 3}, 4)), ElementsAre(4, 5, 6, 7));
}

TEST(Ngram, HasNoGuessWithoutARepetition) {
  EXPECT_THAT(ProposeAfter({1, 2, 3, 4}, 8).nodes, IsEmpty());
  EXPECT_THAT(ProposeAfter({}, 8).nodes, IsEmpty());
}

TEST(Ngram, GivesTheTreeItsPosition) { EXPECT_EQ(ProposeAfter({1, 2, 1}, 8).position, 3); }

TEST(Ngram, KeepsTheNodeBudget) {
  const std::vector<int32_t> tokens(100, 1);
  EXPECT_EQ(ProposeAfter(tokens, 0).num_nodes(), 0);
  EXPECT_EQ(ProposeAfter(tokens, 1).num_nodes(), 1);
  EXPECT_EQ(ProposeAfter(tokens, 17).num_nodes(), 17);
}

TEST(Ngram, PrefersTheLongestMatch) {
  // The token 40 followed 1 2 3. The token 50 followed 3 without 1 2, and later.
  const TokenTree tree = ProposeAfter({1, 2, 3, 40, 9, 3, 50, 8, 3, 50, 7, 1, 2, 3}, 16);
  ASSERT_GT(tree.num_nodes(), 0);
  EXPECT_EQ(tree.nodes[0].token_id, 40);
  EXPECT_GT(ChanceOfRootChild(tree, 40), ChanceOfRootChild(tree, 50));
  EXPECT_GT(ChanceOfRootChild(tree, 50), 0) << "the shorter match is a branch";
}

TEST(Ngram, LoopsArePredictedDeepBeyondTheContext) {
  for (const int32_t period : {1, 2, 3, 7, 50}) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 20 + 3 * period; ++i) tokens.push_back(i % period);
    const std::vector<int32_t> chain = FirstChain(ProposeAfter(tokens, 64));
    ASSERT_GE(chain.size(), 16) << "period " << period;
    for (size_t i = 0; i < chain.size(); ++i) {
      EXPECT_EQ(chain[i], (tokens.size() + i) % period) << "period " << period << ", depth " << i;
    }
  }
}

TEST(Ngram, ARepeatedSegmentIsPredictedBeyondTheContext) {
  // 30 tokens, and 12 of them again. The guess gives the other 18, up to the end of the context, and goes on.
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 42; ++i) tokens.push_back(i % 30);
  const std::vector<int32_t> chain = FirstChain(ProposeAfter(tokens, 48));
  ASSERT_GE(chain.size(), 40);
  for (size_t i = 0; i < chain.size(); ++i) EXPECT_EQ(chain[i], (42 + i) % 30) << "depth " << i;
}

TEST(Ngram, DifferentContinuationsMakeATree) {
  const TokenTree tree = ProposeAfter({1, 2, 10, 7, 1, 2, 11, 8, 1, 2, 10, 9, 1, 2}, 16);
  EXPECT_GT(ChanceOfRootChild(tree, 10), ChanceOfRootChild(tree, 11));
  EXPECT_GT(ChanceOfRootChild(tree, 11), 0);
}

TEST(Ngram, LaterOccurrencesWeighMore) {
  const TokenTree tree = ProposeAfter({1, 2, 10, 7, 1, 2, 11, 8, 1, 2}, 16);
  EXPECT_GT(ChanceOfRootChild(tree, 11), ChanceOfRootChild(tree, 10));
}

TEST(Ngram, ChancesOfSiblingsSumToLessThanOne) {
  std::mt19937 random(7);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 2000; ++i) tokens.push_back(static_cast<int32_t>(random() % 6));
  const TokenTree tree = ProposeAfter(tokens, 128);
  std::vector<float> sums(tree.num_nodes() + 1);
  for (int32_t i = 0; i < tree.num_nodes(); ++i) sums[tree.nodes[i].parent + 1] += tree.nodes[i].chance;
  for (const float sum : sums) EXPECT_LT(sum, 1);
}

TEST(Ngram, ChancesGrowWithEvidence) {
  std::vector<int32_t> once = {1, 2, 3, 9, 1};
  std::vector<int32_t> often;
  for (int32_t i = 0; i < 200; ++i) often.push_back(i % 5);
  EXPECT_LT(ProposeAfter(once, 4).nodes[0].chance, 0.7f);
  EXPECT_GT(ProposeAfter(often, 4).nodes[0].chance, 0.9f);
}

// A token follows a cue with a known chance. The stated chance must be near it.
TEST(Ngram, StatedChancesAreNearTheTruth) {
  std::mt19937 random(11);
  NgramProposer proposer({});
  const std::unique_ptr<Session> session = proposer.Open({});
  double stated = 0;
  int32_t num_right = 0;
  int32_t num_guesses = 0;
  for (int32_t i = 0; i < 3000; ++i) {
    const int32_t cue = 1000;
    const int32_t next = random() % 10 < 7 ? 1 : 2 + static_cast<int32_t>(random() % 500);
    session->Append({{static_cast<int32_t>(5000 + i), cue}});
    const ProposalRequest request = {session.get(), 1};
    const TokenTree tree = proposer.Propose({&request, 1}).front();
    if (i > 100 && tree.num_nodes() > 0) {
      ++num_guesses;
      stated += tree.nodes[0].chance;
      num_right += tree.nodes[0].token_id == next;
    }
    session->Append({&next, 1});
  }
  ASSERT_GT(num_guesses, 2000);
  EXPECT_NEAR(stated / num_guesses, static_cast<double>(num_right) / num_guesses, 0.1);
}

TEST(Ngram, TreesKeepTheRulesOnRandomText) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const int32_t num_ids = 1 + static_cast<int32_t>(random() % 20);
    std::vector<int32_t> tokens;
    for (uint32_t i = 0; i < random() % 600; ++i) tokens.push_back(static_cast<int32_t>(random() % num_ids));
    const int32_t node_budget = static_cast<int32_t>(random() % 200);
    CheckIntegrity(ProposeAfter(tokens, node_budget, {.min_length = 1 + static_cast<int32_t>(seed % 3)}), node_budget);
  }
}

TEST(Ngram, PiecesAndSingleTokensMakeTheSameTree) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 1000; ++i) tokens.push_back((i * i) % 37);
  NgramProposer proposer({});
  const std::unique_ptr<Session> session = proposer.Open({});
  for (const int32_t token : tokens) session->Append({&token, 1});
  const ProposalRequest request = {session.get(), 40};
  const TokenTree tree = proposer.Propose({&request, 1}).front();
  const TokenTree whole = ProposeAfter(tokens, 40);
  EXPECT_EQ(tree.nodes, whole.nodes);
}

TEST(Ngram, MinLengthExcludesShorterMatches) {
  EXPECT_GT(ProposeAfter({1, 2, 3, 1}, 4, {.min_length = 1}).num_nodes(), 0);
  EXPECT_EQ(ProposeAfter({1, 2, 3, 1}, 4, {.min_length = 2}).num_nodes(), 0);
}

TEST(Ngram, OptionsOutOfRangeAreNamed) {
  EXPECT_THAT(Validate(NgramOptions{.min_length = 0}).ToString(), HasSubstr("ngram_min_length"));
  EXPECT_THAT(Validate(NgramOptions{.min_length = 5, .max_length = 4}).ToString(), HasSubstr("ngram_max_length"));
  EXPECT_THAT(Validate(NgramOptions{.max_length = NgramIndex::kMaxLength + 1}).ToString(),
              HasSubstr("ngram_max_length"));
  EXPECT_TRUE(Validate(NgramOptions{}).ok());
}

TEST(NgramIndex, FindsWhatASearchFinds) {
  std::mt19937 random(3);
  NgramIndex index(1, 5);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 3000; ++i) {
    tokens.push_back(static_cast<int32_t>(random() % 12));
    index.Append(tokens.back());
    const int32_t length = 1 + static_cast<int32_t>(random() % 5);
    if (length > tokens.size()) continue;
    std::array<TokenIndex, 8> found;
    const int32_t num_found = index.Find(index.MakeTail(tokens), length, found);
    TokenIndex expected = 0;
    for (TokenIndex next = static_cast<TokenIndex>(tokens.size()) - 1; next >= length && expected == 0; --next) {
      if (std::equal(tokens.end() - length, tokens.end(), tokens.begin() + next - length)) expected = next;
    }
    // A slot that n-grams share may hide an occurrence. It never adds one.
    if (num_found > 0) {
      EXPECT_EQ(found[0], expected);
    }
    if (length <= 2 && expected != 0) {
      EXPECT_GT(num_found, 0);
    }
  }
}

}  // namespace
}  // namespace foretoken::proposer
