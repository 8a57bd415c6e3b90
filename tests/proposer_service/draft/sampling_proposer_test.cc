// SPDX-License-Identifier: Apache-2.0
// The tests' own sampling proposer. If these tests fail, the tests of exact rejection sampling prove nothing.
#include "tests/testing/fakes/sampling_proposer.h"

#include <cmath>
#include <map>

#include "common/rpc/tree_conversion.h"
#include "gtest/gtest.h"
#include "tests/testing/cases/tree_columns.h"
#include "tests/testing/paths.h"

namespace foretoken::testing {
namespace {

using proposer::SessionIntroduction;
using speculation::SampledChildren;
using speculation::TokenTree;
using enum kernels::VerificationRule;

constexpr int32_t kNumTokens = 300;

TokenTree Propose(SamplingProposer& proposer, const SessionIntroduction& introduction,
                  const std::vector<int32_t>& context, int32_t node_budget) {
  const std::unique_ptr<proposer::Session> session = proposer.Open(introduction);
  session->Append(context);
  const proposer::ProposalRequest request = {.session = session.get(), .node_budget = node_budget};
  return proposer.Propose({&request, 1}).front();
}

void ExpectEqual(const TokenTree& a, const TokenTree& b) {
  EXPECT_EQ(a.position, b.position);
  EXPECT_EQ(testing::TokenIds(a), testing::TokenIds(b));
  EXPECT_EQ(testing::Parents(a), testing::Parents(b));
  ASSERT_EQ(a.sampled.size(), b.sampled.size());
  for (size_t i = 0; i < a.sampled.size(); ++i) {
    EXPECT_EQ(a.sampled[i].children, b.sampled[i].children);
    EXPECT_EQ(a.sampled[i].draft->probs, b.sampled[i].draft->probs);
  }
}

// The slack of a measured frequency. A correct frequency is outside once in a billion.
double Slack(double prob, int num_trials) { return 6 * std::sqrt(prob * (1 - prob) / num_trials); }

TEST(SamplingProposer, ItsTreesSurviveTheWireWithEveryBudget) {
  SamplingProposer proposer(HashDistribution(kNumTokens), {.top_k = 5, .children_by_depth = {3, 2, 1}});
  for (int32_t budget = 0; budget < 20; ++budget) {
    const TokenTree tree = Propose(proposer, {.rule = kRejectionSampling, .seed = 7}, {1, 2, budget}, budget);
    EXPECT_LE(tree.num_nodes(), budget);
    const absl::StatusOr<TokenTree> received =
        rpc::FromProto(rpc::ToProto(tree, 1), {.num_tokens = kNumTokens, .proposers = 1});
    ASSERT_TRUE(received.ok()) << received.status();
    ExpectEqual(*received, tree);
    for (const SampledChildren& group : tree.sampled) {
      const int depth = group.parent == -1 ? 0 : tree.nodes[group.parent].parent == -1 ? 1 : 2;
      EXPECT_EQ(group.children.size(), 3 - depth) << "all children of a node or none";
    }
  }
}

TEST(SamplingProposer, GuessesUnderTheKeyedDraw) {
  SamplingProposer proposer(HashDistribution(kNumTokens), {});
  const TokenTree tree = Propose(proposer, {.rule = kKeyedDraw, .seed = 7}, {1, 2}, 16);
  EXPECT_EQ(tree.num_nodes(), 3 + 6 + 6);
  EXPECT_TRUE(tree.sampled.empty());
}

TEST(SamplingProposer, AnotherDrawGivesTheSameChildren) {
  SamplingProposer proposer(HashDistribution(kNumTokens), {.children_by_depth = {2, 2, 2, 2}});
  const SessionIntroduction introduction = {.rule = kRejectionSampling, .seed = 7};
  const TokenTree tree = Propose(proposer, introduction, {1, 2}, 64);
  const int32_t accepted = tree.nodes[1].token_id;
  TokenTree below = speculation::ReRoot(
      [&] {
        TokenTree with_bits = tree;
        for (speculation::TreeNode& node : with_bits.nodes) node.proposers = 1;
        return with_bits;
      }(),
      std::vector<int32_t>{accepted});
  const TokenTree again = Propose(proposer, introduction, {1, 2, accepted}, 64);
  std::map<std::vector<int32_t>, std::vector<int32_t>> children;  // tokens by path
  const auto path_of = [](const TokenTree& of, int32_t node) {
    std::vector<int32_t> path;
    for (; node != -1; node = of.nodes[node].parent) path.insert(path.begin(), of.nodes[node].token_id);
    return path;
  };
  const auto tokens_of = [](const TokenTree& of, const SampledChildren& group) {
    std::vector<int32_t> tokens;
    for (const int32_t child : group.children) tokens.push_back(of.nodes[child].token_id);
    return tokens;
  };
  for (const SampledChildren& group : again.sampled) children[path_of(again, group.parent)] = tokens_of(again, group);
  ASSERT_GT(below.sampled.size(), 3);
  for (const SampledChildren& group : below.sampled) {
    EXPECT_EQ(tokens_of(below, group), children.at(path_of(below, group.parent)));
  }
}

TEST(SamplingProposer, ChildrenFollowTheRecursiveDistribution) {
  constexpr int kNumTrials = 20000;
  const LogitDistribution distribution = [](std::span<const int32_t>) {
    return std::vector<float>{1.f, 0.f, 2.f, -1.f, 1.5f};
  };
  SamplingProposer proposer(distribution, {.top_k = 4, .children_by_depth = {2}});
  std::map<std::pair<int32_t, int32_t>, int> counts;
  speculation::DraftDistribution draft;
  for (int seed = 0; seed < kNumTrials; ++seed) {
    const TokenTree tree = Propose(proposer, {.rule = kRejectionSampling, .seed = static_cast<uint64_t>(seed)}, {1}, 2);
    ASSERT_EQ(tree.num_nodes(), 2);
    ++counts[{tree.nodes[0].token_id, tree.nodes[1].token_id}];
    draft = *tree.sampled[0].draft;
  }
  ASSERT_EQ(draft.token_ids, (std::vector<int32_t>{0, 1, 2, 4}));
  for (size_t i = 0; i < draft.probs.size(); ++i) {
    for (size_t j = 0; j < draft.probs.size(); ++j) {
      const double want = i == j ? 0 : draft.probs[i] * draft.probs[j] / (1 - draft.probs[i]);
      const double got = double{1} * counts[{draft.token_ids[i], draft.token_ids[j]}] / kNumTrials;
      EXPECT_NEAR(got, want, Slack(want, kNumTrials)) << draft.token_ids[i] << " " << draft.token_ids[j];
    }
  }
}

TEST(SamplingProposer, NodesShareNoNoise) {
  constexpr int kNumTrials = 5000;
  const LogitDistribution distribution = [](std::span<const int32_t>) { return std::vector<float>(4, 0.f); };
  SamplingProposer proposer(distribution, {.top_k = 4, .children_by_depth = {2, 1}});
  int num_equal_cousins = 0, num_like_parent = 0;
  for (int seed = 0; seed < kNumTrials; ++seed) {
    const TokenTree tree = Propose(proposer, {.rule = kRejectionSampling, .seed = static_cast<uint64_t>(seed)}, {1}, 4);
    ASSERT_EQ(tree.num_nodes(), 4);
    if (tree.nodes[2].token_id == tree.nodes[3].token_id) ++num_equal_cousins;
    if (tree.nodes[2].token_id == tree.nodes[tree.nodes[2].parent].token_id) ++num_like_parent;
  }
  EXPECT_NEAR(double{1} * num_equal_cousins / kNumTrials, .25, Slack(.25, kNumTrials));
  EXPECT_NEAR(double{1} * num_like_parent / kNumTrials, .25, Slack(.25, kNumTrials));
}

TEST(SamplingProposer, AModelsDistributionDoesNotDependOnEarlierCalls) {
  const LogitDistribution fresh = ModelDistribution(SourcePath("deploy/demo/draft"));
  const LogitDistribution used = ModelDistribution(SourcePath("deploy/demo/draft"));
  for (const std::vector<int32_t>& context :
       std::vector<std::vector<int32_t>>{{5, 6, 7}, {5, 6, 7, 8}, {5, 9}, {5, 9}}) {
    used(context);
  }
  EXPECT_EQ(used(std::vector<int32_t>{5, 6, 7, 8, 10}), fresh(std::vector<int32_t>{5, 6, 7, 8, 10}));
}

}  // namespace
}  // namespace foretoken::testing
