// SPDX-License-Identifier: Apache-2.0
// Rejection sampling as an op.
#include <gtest/gtest.h>

#include <limits>

#include "kernels/keyed_coins.h"
#include "kernels/rejection_sampling.h"
#include "tests/reference/sampling.h"
#include "tests/testing/cases/accept_trees_cases.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {
namespace {

using kernels::AcceptedPath;
using kernels::DrawnChildren;
using kernels::DrawStatus;
using kernels::DType;
using kernels::KeyedCoins;
using kernels::RowWeights;
using kernels::SamplingParams;
using kernels::Shape;
using kernels::TreeToAccept;
using kernels::VerificationRule;

constexpr int32_t kNumDrafted = 37;  // number of tokens that proposers may draft, spread over the vocabulary

// A random tree with children that two proposers sampled and a third guessed, and a random row for every node.
struct RandomTree {
  struct Group {
    int32_t parent;
    std::vector<int32_t> children;
    std::vector<float> probs;  // [kNumDrafted]; empty for guesses
  };

  RandomTree(RandomValues& random, int32_t num_tokens, const SamplingParams& params, bool is_chain)
      : num_tokens(num_tokens), width(num_tokens + 3), sampling(params) {
    for (int32_t i = 0; i < kNumDrafted; ++i) drafted_ids.push_back(i * (num_tokens / kNumDrafted));
    num_rows = 1 + random.Below(6);
    AddNode(random, -1);
    for (int32_t node = 0; node < num_rows && node < std::ssize(parents); ++node) {
      if (is_chain) {
        AddGroup(random, node, 1, /*is_sampled=*/true);
        continue;
      }
      AddGroup(random, node, random.Below(4), true);
      AddGroup(random, node, random.Below(3), true);
      AddGroup(random, node, random.Below(3), false);
    }
    num_rows = std::min<int32_t>(num_rows, std::ssize(parents));
    logits = random.Normals(size_t{1} * num_rows * width, 1.5f);
    for (int32_t row = 0; row < num_rows && num_tokens > kNumDrafted; ++row) {
      for (const int32_t id : drafted_ids) logits[row * width + id] += 4;  // otherwise few would be accepted
    }
    for (const Group& group : groups) {
      drawn.push_back({.parent = group.parent,
                       .children = group.children,
                       .draft_token_ids = std::span(drafted_ids).first(group.probs.size()),
                       .draft_probs = group.probs});
    }
    context_len = 10 + random.Below(100);
  }

  void AddNode(RandomValues& random, int32_t parent) {
    parents.push_back(parent);
    token_ids.push_back(drafted_ids[random.Below(kNumDrafted)]);
  }

  void AddGroup(RandomValues& random, int32_t parent, int num_children, bool is_sampled) {
    if (num_children == 0) return;
    Group group{.parent = parent};
    if (is_sampled) {
      for (int32_t i = 0; i < kNumDrafted; ++i) group.probs.push_back(static_cast<float>(random.Uniform()));
    }
    for (int i = 0; i < num_children; ++i) {
      group.children.push_back(static_cast<int32_t>(parents.size()));
      AddNode(random, parent);
    }
    groups.push_back(std::move(group));
  }

  TreeToAccept At(int32_t first_logit_row) const {
    return {.first_logit_row = first_logit_row,
            .token_ids = token_ids,
            .parents = parents,
            .context_len = context_len,
            .sampling = sampling,
            .num_top_logprobs = 2,
            .rule = VerificationRule::kRejectionSampling,
            .num_rows = num_rows,
            .drawn = drawn};
  }

  AcceptedPath WalkReference() const {
    AcceptedPath path;
    const TreeToAccept tree = At(0);
    KeyedCoins coins(sampling.coin_key(), sampling.sample_index);
    std::vector<double> weights;
    const auto rows = [&](int32_t node_idx, std::span<const int32_t> path_token_ids) -> RowWeights {
      const float* row = logits.data() + node_idx * width;
      weights = reference::FilteredDistribution({.logits = {row, row + num_tokens},
                                                 .sampling = sampling,
                                                 .path_token_ids = {path_token_ids.begin(), path_token_ids.end()}});
      return {DrawStatus::kOk, weights};
    };
    WalkByRejection(tree, rows, coins, path);
    return path;
  }

  int32_t num_tokens;
  int32_t width;
  SamplingParams sampling;
  int32_t num_rows = 0;
  std::vector<int32_t> parents, token_ids, drafted_ids;
  std::vector<Group> groups;
  std::vector<DrawnChildren> drawn;
  std::vector<float> logits;
  uint32_t context_len = 0;
};

}  // namespace

void ExpectTheRejectionRule(const AcceptTreesOp& op, int32_t num_tokens, int num_rounds) {
  const std::vector<SamplingParams> samplings = {
      {.temperature = 1, .seed = 5},
      {.temperature = 0, .seed = 6},
      {.temperature = 0.7f, .top_p = 0.8f, .seed = 7, .coin_nonce = 9, .sample_index = 3},
      {.temperature = 1.2f, .top_k = 5, .frequency_penalty = 1, .seed = 8}};
  const size_t width = num_tokens + 3;
  RandomValues random(11);
  size_t num_accepted = 0, num_whole = 0;
  for (int round = 0; round < num_rounds; ++round) {
    std::vector<RandomTree> sequences;
    sequences.reserve(20);
    for (int i = 0; i < 20; ++i)
      sequences.emplace_back(random, num_tokens, samplings[random.Below(samplings.size())], i % 3 == 0);
    std::vector<TreeToAccept> trees;
    std::vector<float> logits;
    for (const RandomTree& sequence : sequences) {
      trees.push_back(sequence.At(static_cast<int32_t>(logits.size() / width)));
      logits.insert(logits.end(), sequence.logits.begin(), sequence.logits.end());
    }
    std::vector<AcceptedPath> paths(trees.size());
    op({.logits = {logits.data(), DType::kF32, Shape(logits.size() / width, width)},
        .num_tokens = num_tokens,
        .trees = trees,
        .paths = paths});
    for (size_t i = 0; i < trees.size(); ++i) {
      const AcceptedPath expected = sequences[i].WalkReference();
      ASSERT_EQ(paths[i].token_ids, expected.token_ids) << round << " " << i;
      ASSERT_EQ(paths[i].node_idx, expected.node_idx);
      ASSERT_EQ(paths[i].logprobs.size(), paths[i].token_ids.size());
      num_accepted += paths[i].token_ids.size() - 1;
      if (paths[i].node_idx.size() > 2) ++num_whole;
    }
  }
  EXPECT_GT(num_accepted, num_rounds);
  EXPECT_GE(num_whole, num_rounds / 10);
}

void ExpectABrokenRowToEndTheTestAndSaySo(const AcceptTreesOp& op) {
  constexpr int32_t kWidth = 40;
  std::vector<float> logits(2 * kWidth, 0);
  logits[5] = 100;  // the root draws token 5
  logits[kWidth + 7] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<int32_t> token_ids = {1, 5}, parents = {-1, 0}, children = {1};
  const std::vector<DrawnChildren> drawn = {{.parent = 0, .children = children}};
  const TreeToAccept tree = {.token_ids = token_ids,
                             .parents = parents,
                             .rule = VerificationRule::kRejectionSampling,
                             .num_rows = 2,
                             .drawn = drawn};
  AcceptedPath path;
  op({.logits = {logits.data(), DType::kF32, Shape(2, kWidth)},
      .num_tokens = 37,
      .trees = {&tree, 1},
      .paths = {&path, 1}});
  EXPECT_EQ(path.status, DrawStatus::kNonFiniteLogits);
  EXPECT_EQ(path.token_ids, std::vector<int32_t>{5});
}

}  // namespace foretoken::testing
