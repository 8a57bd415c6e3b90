// SPDX-License-Identifier: Apache-2.0
// The production rules against the formulas at every node. The formulas without a production rule, which are traversal
// and the keyed draw, are compared with the target's distribution too. If this test fails, the server's rule is not the
// published rule, or the references of the suite are wrong.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/rejection_sampling.h"
#include "kernels/target_residual.h"
#include "tests/exact/walk_distribution.h"
#include "tests/reference/sampling.h"
#include "tests/reference/verification_rules.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {
namespace {

using reference::Distribution;
using reference::Group;

Distribution RandomDistribution(RandomValues& random, int32_t num_tokens) {
  const DistributionKind kinds[] = {DistributionKind::kDense, DistributionKind::kWithZeros, DistributionKind::kPoint};
  const DistributionKind kind = kinds[random.Below(8) % 3];
  const SmallDistribution distribution =
      SmallDistribution::Random({.num_tokens = num_tokens, .max_len = 0}, kind, random);
  return {distribution.At({}).begin(), distribution.At({}).end()};
}

// Draws distinct tokens, at most as many as the distribution has.
std::vector<int32_t> Sample(RandomValues& random, Distribution distribution, int32_t max_children) {
  std::vector<int32_t> token_ids;
  while (max_children-- > 0 && std::accumulate(distribution.begin(), distribution.end(), 0.0) > 0) {
    double left = random.Uniform() * std::accumulate(distribution.begin(), distribution.end(), 0.0);
    int32_t token_id = 0;
    while (distribution[token_id] <= left) left -= distribution[token_id++];
    token_ids.push_back(token_id);
    distribution[token_id] = 0;
  }
  return token_ids;
}

// A node with children that one to three proposers drew, in the form of the formula and in the form of the production
// rule.
class RandomNode {
 public:
  explicit RandomNode(RandomValues& random) : weights_(RandomDistribution(random, 2 + random.Below(4))) {
    for (int i = random.Below(3); i >= 0; --i) AddGroup(random);
    for (size_t i = 0; i < groups_.size(); ++i) {
      drawn_.push_back(
          {.children = children_[i], .draft_token_ids = drafts_[i].token_ids, .draft_probs = drafts_[i].probs});
    }
  }
  RandomNode(const RandomNode&) = delete;
  RandomNode& operator=(const RandomNode&) = delete;

  const Distribution& weights() const { return weights_; }
  size_t num_children() const { return token_ids_.size() - 1; }
  kernels::TreeToAccept tree() const { return {.token_ids = token_ids_, .num_rows = 1, .drawn = drawn_}; }
  reference::NodeOutcomes ByFormula() const { return reference::TestNode(reference::Normalised(weights_), groups_); }

 private:
  void AddGroup(RandomValues& random) {
    const Distribution draft = RandomDistribution(random, static_cast<int32_t>(weights_.size()));
    const bool is_point = random.Coin(0.3);
    groups_.push_back({.token_ids = Sample(random, draft, 1 + random.Below(3)),
                       .draft = is_point ? Distribution() : reference::Normalised(draft)});
    drafts_.push_back(is_point ? speculation::DraftDistribution() : DraftOf(draft));
    children_.emplace_back(groups_.back().token_ids.size());
    std::iota(children_.back().begin(), children_.back().end(), static_cast<int32_t>(token_ids_.size()));
    token_ids_.insert(token_ids_.end(), groups_.back().token_ids.begin(), groups_.back().token_ids.end());
  }

  Distribution weights_;
  std::vector<Group> groups_;
  std::vector<speculation::DraftDistribution> drafts_;
  std::vector<int32_t> token_ids_ = {0};
  std::vector<std::vector<int32_t>> children_;
  std::vector<kernels::DrawnChildren> drawn_;
};

TEST(ReferenceRules, ANodeIsTestedByTheFormula) {
  RandomValues random(1);
  for (int round = 0; round < 500; ++round) {
    const RandomNode node(random);
    const kernels::TreeToAccept tree = node.tree();
    const reference::NodeOutcomes expected = node.ByFormula();
    std::vector<double> accepted(node.num_children(), 0);
    double none_accepted = 0;
    EnumerateOutcomes([&](Branches& branches) {
      Distribution row = node.weights();
      kernels::TargetResidual target(row);
      EnumeratedCoins coins(branches);
      coins.Begin(0);
      const std::optional<int32_t> child = kernels::TestChildren(tree, 0, target, coins);
      (child.has_value() ? accepted[*child - 1] : none_accepted) += branches.probability();
      if (child.has_value() || branches.probability() < kExact) return;
      for (size_t id = 0; id < node.weights().size(); ++id)
        ASSERT_NEAR(target.Prob(static_cast<int32_t>(id)), expected.last_distribution[id], 1e-9) << round;
    });
    for (size_t i = 0; i < accepted.size(); ++i) ASSERT_NEAR(accepted[i], expected.accepted[i], kExact) << round;
    ASSERT_NEAR(none_accepted, expected.none_accepted, kExact) << round;
  }
}

// Returns the distribution of what a block emits: its accepted tokens, and one more where there is a row for it.
EmittedDistribution EmittedByFormula(const SmallDistribution& target, const std::vector<int32_t>& block,
                                     const reference::BlockOutcomes& outcomes) {
  EmittedDistribution distribution(target);
  for (size_t len = 0; len < outcomes.num_accepted.size(); ++len) {
    std::vector<int32_t> emitted(block.begin(), block.begin() + len);
    if (outcomes.last_distributions[len].empty()) distribution.Add(emitted, outcomes.num_accepted[len]);
    for (size_t id = 0; id < outcomes.last_distributions[len].size(); ++id) {
      emitted.push_back(static_cast<int32_t>(id));
      distribution.Add(emitted, outcomes.num_accepted[len] * outcomes.last_distributions[len][id]);
      emitted.pop_back();
    }
  }
  return distribution;
}

TEST(ReferenceRules, ABlockIsVerifiedByTheFormula) {
  RandomValues random(2);
  const PathNumbering paths{.num_tokens = 3, .max_len = 4};
  for (int round = 0; round < 200; ++round) {
    const DistributionKind kind = round % 2 == 0 ? DistributionKind::kDense : DistributionKind::kWithZeros;
    const SmallDistribution target = SmallDistribution::Random(paths, kind, random),
                            draft = SmallDistribution::Random(paths, kind, random);
    speculation::TokenTree tree;
    std::vector<int32_t> block;
    std::vector<Distribution> targets, drafts;
    for (int32_t i = 0; i < 2 + round % 2; ++i) {
      const std::span<const double> row = draft.At(block);
      targets.push_back(reference::Normalised({target.At(block).begin(), target.At(block).end()}));
      drafts.push_back(reference::Normalised({row.begin(), row.end()}));
      tree.sampled.push_back(
          {.parent = i - 1, .children = {i}, .draft = std::make_shared<speculation::DraftDistribution>(DraftOf(row))});
      block.push_back(Sample(random, drafts.back(), 1)[0]);
      tree.Append({.token_id = block.back(), .parent = i - 1, .proposers = 1});
    }
    std::vector<int32_t> row_node_idx = AllRows(tree);
    if (round % 3 == 0) {
      row_node_idx.pop_back();
    } else {
      targets.push_back(reference::Normalised({target.At(block).begin(), target.At(block).end()}));
    }
    const EmittedDistribution distribution = DistributionOf(
        target, [&](Branches& branches) { return Emit(target, {}, tree, row_node_idx, branches, ByBlock()); });
    const EmittedDistribution expected = EmittedByFormula(target, block, reference::JudgeBlock(block, targets, drafts));
    ASSERT_LE(distribution.Distance(expected), kExact) << round;
  }
}

// Converts the tree of a sampling proposer to the form of a traversal.
reference::TraversalNode NodeOf(const SmallDistribution& target, const SmallDistribution& draft,
                                const speculation::TokenTree& tree, int32_t node_idx, std::vector<int32_t>& path) {
  const auto distribution = [&](const SmallDistribution& of) {
    return reference::Normalised({of.At(path).begin(), of.At(path).end()});
  };
  reference::TraversalNode node{.target = distribution(target), .draft = distribution(draft)};
  for (int32_t child = node_idx + 1; child < tree.num_nodes(); ++child) {
    if (tree.nodes[child].parent != node_idx) continue;
    path.push_back(tree.nodes[child].token_id);
    node.children.push_back(NodeOf(target, draft, tree, child, path));
    node.children.back().token_id = tree.nodes[child].token_id;
    path.pop_back();
  }
  return node;
}

double TraversalError(const SmallDistribution& target, const SmallDistribution& draft,
                      const reference::ParentChance& parent_chance) {
  EmittedDistribution distribution(target);
  const SmallProposer proposer = {.distribution = &draft, .wants_child = [](const NodePlace& place) {
                                    return place.path.size() < 2 && place.siblings.size() < 2;
                                  }};
  EnumerateOutcomes([&](Branches& branches) {
    const speculation::TokenTree tree = DrawTree(proposer, {}, branches);
    std::vector<int32_t> path;
    const reference::TraversalNode root = NodeOf(target, draft, tree, speculation::kRootParent, path);
    reference::Traverse(
        root, parent_chance,
        [&](std::span<const int32_t> accepted, const Distribution& last_distribution, double probability) {
          std::vector<int32_t> emitted(accepted.begin(), accepted.end());
          for (size_t id = 0; id < last_distribution.size(); ++id) {
            emitted.push_back(static_cast<int32_t>(id));
            distribution.Add(emitted, branches.probability() * probability * last_distribution[id]);
            emitted.pop_back();
          }
        });
  });
  return distribution.Error();
}

TEST(ReferenceRules, TraversalIsExactAndItsWrongPublicFormIsDetected) {
  const PathNumbering paths{.num_tokens = 3, .max_len = 3};
  RandomValues random(3);
  double worst = 0;
  for (int i = 0; i < 10; ++i) {
    const SmallDistribution target = SmallDistribution::Random(paths, DistributionKind::kDense, random);
    const SmallDistribution draft = SmallDistribution::Random(paths, DistributionKind::kDense, random);
    EXPECT_LE(TraversalError(target, draft, reference::ExactParentChance), kExact);
    const auto wrong = [](double mass, double, double draft_prob) {
      return draft_prob < 1 ? std::min(1.0, mass / (1 - draft_prob)) : 1;
    };
    worst = std::max(worst, TraversalError(target, draft, wrong));
  }
  EXPECT_GT(worst, 1e-3);
}

// Under the keyed draw no tree changes a drawn token. A tree changes only the number of tokens per step.
TEST(ReferenceRules, AKeyedDrawIsExactWithAnyTree) {
  const PathNumbering paths{.num_tokens = 3, .max_len = 4};
  RandomValues random(4);
  for (int i = 0; i < 10; ++i) {
    const SmallDistribution target =
        SmallDistribution::Random(paths, i % 2 == 0 ? DistributionKind::kDense : DistributionKind::kWithZeros, random);
    // The children are the target's most likely tokens, chosen by their values. For a ratio test this is the worst
    // case.
    const SmallProposer proposer = {.distribution = &target,
                                    .drawing = i % 3 == 0 ? Drawing::kSampled : Drawing::kBest,
                                    .wants_child = [](const NodePlace& place) {
                                      return place.path.size() < 3 &&
                                             place.siblings.size() < 1 + place.ranks.size() % 2;
                                    }};
    const EmittedDistribution distribution = DistributionOf(target, [&](Branches& branches) {
      const speculation::TokenTree tree = DrawTree(proposer, {}, branches);
      std::vector<int32_t> emitted;
      while (true) {
        emitted.push_back(branches.Choose(target.At(emitted)));
        if (speculation::MatchedPath(tree, emitted).size() < emitted.size()) return emitted;
      }
    });
    EXPECT_LE(distribution.Error(), kExact);
  }
}

// The expected share of matches is the sum over j of 1 / sum over i of max(P_i / P_j, Q_i / Q_j). The tolerance is four
// standard deviations.
TEST(ReferenceRules, OneChildDrawnWithTheTargetsNoiseMatchesAsOftenAsPossible) {
  constexpr int kNumDraws = 20000;
  RandomValues random(5);
  std::vector<float> target(5), draft(5);
  for (float& logit : target) logit = random.Normal();
  for (float& logit : draft) logit = random.Normal();
  const auto draw = [](const std::vector<float>& logits, uint32_t t) {
    return reference::DrawToken({.logits = logits, .sampling = {.temperature = 1, .seed = 3}, .t = t});
  };
  int num_matches = 0;
  for (int t = 0; t < kNumDraws; ++t) num_matches += draw(target, t) == draw(draft, t);
  double expected = 0;
  const std::vector<double> target_log = reference::LogSoftmax(target), draft_log = reference::LogSoftmax(draft);
  for (size_t j = 0; j < target.size(); ++j) {
    double sum = 0;
    for (size_t i = 0; i < target.size(); ++i) {
      sum += std::exp(std::max(target_log[i] - target_log[j], draft_log[i] - draft_log[j]));
    }
    expected += 1 / sum;
  }
  EXPECT_NEAR(num_matches / double{kNumDraws}, expected, 4 * std::sqrt(expected * (1 - expected) / kNumDraws));
}

}  // namespace
}  // namespace foretoken::testing
