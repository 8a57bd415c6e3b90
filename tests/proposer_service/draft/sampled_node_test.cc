// SPDX-License-Identifier: Apache-2.0
// Sampled children, and trees of them. If these tests fail, rejection sampling is no longer exact: the output has
// another distribution than the target model.
#include "proposer_service/draft/sampled_node.h"

#include <cmath>
#include <set>

#include "common/rpc/tree_conversion.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/models/draft_model.h"

namespace foretoken::proposer {
namespace {

using speculation::TokenTree;

const std::vector<kernels::ScoredToken> kDistribution = {
    {40, std::log(0.4f)}, {7, std::log(0.3f)}, {12, std::log(0.2f)}};

SampledNode Sample(uint64_t seed, uint64_t context_hash, int32_t num_children = 2) {
  return SampleChildren(
      {.distribution = kDistribution, .num_children = num_children, .seed = seed, .context_hash = context_hash});
}

TEST(SampleChildren, SendsTheDistributionAscendingAndSamplesDistinctTokensOfIt) {
  const SampledNode node = Sample(1, 2, 5);
  EXPECT_THAT(node.draft->token_ids, ::testing::ElementsAre(7, 12, 40));
  EXPECT_FLOAT_EQ(node.draft->probs[0], 0.3f);
  EXPECT_EQ(node.children.size(), 3) << "no more than the distribution has";
  std::set<int32_t> distinct;
  for (const kernels::ScoredToken& child : node.children) distinct.insert(child.token_id);
  EXPECT_EQ(distinct.size(), 3);
}

// The ordered pair (a, b) has the chance p(a) p(b) / (1 - p(a)), where p is the distribution divided by its sum.
TEST(SampleChildren, FollowsTheDistributionWithoutReplacement) {
  std::map<std::pair<int32_t, int32_t>, int> counts;
  constexpr int kTrials = 60000;
  for (int i = 0; i < kTrials; ++i) {
    const SampledNode node = Sample(5, static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15);
    ++counts[{node.children[0].token_id, node.children[1].token_id}];
  }
  const std::map<int32_t, double> distribution = {{40, 4. / 9}, {7, 3. / 9}, {12, 2. / 9}};
  double chi_square = 0;
  for (const auto& [pair, count] : counts) {
    const double expected =
        kTrials * distribution.at(pair.first) * distribution.at(pair.second) / (1 - distribution.at(pair.first));
    chi_square += (count - expected) * (count - expected) / expected;
  }
  EXPECT_EQ(counts.size(), 6);
  EXPECT_LT(chi_square, 25.7) << "the 1 - 1e-4 quantile with 5 degrees of freedom";
}

TEST(SampleChildren, TheSameNodeGetsTheSameChildren) {
  for (uint64_t hash = 0; hash < 20; ++hash) {
    EXPECT_EQ(Sample(1, hash).children[0].token_id, Sample(1, hash).children[0].token_id);
  }
  EXPECT_NE(ExtendContextHash(ExtendContextHash(0, 1), 2), ExtendContextHash(ExtendContextHash(0, 2), 1));
}

TEST(SampleChildren, ProposersWithOtherSaltsDrawIndependently) {
  constexpr int kTrials = 20000;
  int num_equal = 0;
  for (uint64_t hash = 0; hash < kTrials; ++hash) {
    const auto first_child = [&](uint64_t salt) {
      return SampleChildren({.distribution = kDistribution, .num_children = 1, .context_hash = hash, .salt = salt})
          .children[0]
          .token_id;
    };
    if (first_child(1) == first_child(2)) ++num_equal;
  }
  EXPECT_NEAR(num_equal, kTrials * (16 + 9 + 4) / 81., 300) << "by chance alone; 4.4 standard deviations";
}

class SampledTreeTest : public ::testing::Test {
 protected:
  static void CheckGroups(const TokenTree& tree, int32_t num_children) {
    std::set<int32_t> grouped;
    for (const speculation::SampledChildren& group : tree.sampled) {
      EXPECT_EQ(group.children.size(), num_children) << "all of a node's children or none";
      for (const int32_t child : group.children) {
        EXPECT_EQ(tree.nodes[child].parent, group.parent);
        EXPECT_TRUE(grouped.insert(child).second);
      }
    }
    EXPECT_EQ(grouped.size(), tree.num_nodes());
  }

  testing::DrivenDraft draft_;
};

TEST_F(SampledTreeTest, HasAllChildrenOfANodeOrNoneAndSurvivesTheWire) {
  const auto session = draft_.Open({.rule = kernels::VerificationRule::kRejectionSampling, .seed = 3});
  session->Append(std::vector<int32_t>{17, 300, 25, 40});
  session->Want({.node_budget = 64});
  for (const int32_t budget : {40, 7, 3, 2}) {
    const ProposalRequest request = {.session = session.get(), .node_budget = budget};
    const TokenTree tree = draft_.Propose({&request, 1}).front();
    EXPECT_EQ(tree.num_nodes(), budget / 3 * 3);
    CheckGroups(tree, 3);
    EXPECT_TRUE(rpc::FromProto(rpc::ToProto(tree, 1), {.num_tokens = 4096}).ok());
  }
}

TEST_F(SampledTreeTest, KeepsItsChildrenAcrossAnAdvance) {
  const auto session = draft_.Open({.rule = kernels::VerificationRule::kRejectionSampling, .seed = 3});
  session->Append(std::vector<int32_t>{17, 300, 25, 40});
  session->Want({.node_budget = 64});
  const ProposalRequest request = {.session = session.get(), .node_budget = 60};
  TokenTree before = draft_.Propose({&request, 1}).front();
  const std::vector<int32_t> committed = {before.nodes[0].token_id};
  const TokenTree expected = speculation::ReRoot(before, committed);
  session->Append(committed);
  session->Want({.node_budget = 64});
  const TokenTree after = draft_.Propose({&request, 1}).front();
  CheckGroups(after, 3);
  ASSERT_GT(expected.num_nodes(), 0);
  for (int32_t i = 0; i < 3; ++i) EXPECT_EQ(after.nodes[i].token_id, expected.nodes[i].token_id);
}

TEST_F(SampledTreeTest, AtTemperatureZeroChildrenAreGuesses) {
  const auto session =
      draft_.Open({.rule = kernels::VerificationRule::kRejectionSampling, .seed = 3, .temperature = 0});
  session->Append(std::vector<int32_t>{17, 300, 25, 40});
  session->Want({.node_budget = 64});
  const ProposalRequest request = {.session = session.get(), .node_budget = 10};
  const TokenTree tree = draft_.Propose({&request, 1}).front();
  EXPECT_EQ(tree.num_nodes(), 10);
  EXPECT_TRUE(tree.sampled.empty());
}

}  // namespace
}  // namespace foretoken::proposer
