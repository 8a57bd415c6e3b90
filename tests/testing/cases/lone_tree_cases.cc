// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tests/testing/cases/accept_trees_cases.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/cases/token_mask.h"

namespace foretoken::testing {
namespace {

using kernels::AcceptedPath;
using kernels::DrawnChildren;
using kernels::DType;
using kernels::LogitBias;
using kernels::SamplingParams;
using kernels::Shape;
using kernels::TokenCount;
using kernels::TokenLogprob;
using kernels::TreeToAccept;
using kernels::VerificationRule;

constexpr int32_t kVocab = 4500;
constexpr int32_t kWidth = 4501;  // rows begin at every alignment

SamplingParams RandomSampling(RandomValues& random) {
  SamplingParams sampling{.temperature = random.Coin(0.2) ? 0 : static_cast<float>(0.3 + random.Uniform()),
                          .seed = static_cast<uint64_t>(random.Below(1 << 30))};
  if (random.Coin(0.3)) sampling.top_k = 1 + random.Below(100);
  if (random.Coin(0.4)) sampling.top_p = static_cast<float>(random.Uniform());
  if (random.Coin(0.2)) sampling.min_p = 0.05f;
  if (random.Coin(0.3)) sampling.presence_penalty = 1;
  return sampling;
}

// The parts of a tree, with its logits.
struct LoneTree {
  explicit LoneTree(RandomValues& random) : sampling(RandomSampling(random)) {
    const int32_t num_nodes = 1 + random.Below(5);
    logits = random.Normals(size_t{1} * num_nodes * kWidth, 2);
    for (int32_t node = 0; node < num_nodes; ++node) {
      parents.push_back(node == 0 ? -1 : random.Below(node));
      // Most nodes carry the most likely token at their parent, so that walks continue.
      const float* row = logits.data() + std::max(parents[node], 0) * kWidth;
      token_ids.push_back(static_cast<int32_t>(std::max_element(row, row + kVocab) - row));
      if (random.Coin(0.2)) token_ids.back() = random.Below(kVocab);
      children.push_back({node});
      draft_ids.push_back({token_ids[node], (token_ids[node] + 3000) % kVocab});
    }
    for (int32_t node = 0; node < num_nodes; ++node) {
      logits[node * kWidth + token_ids[std::min(node + 1, num_nodes - 1)]] += 3;
    }
    for (int32_t node = 1; node < num_nodes; ++node) {
      drawn.push_back({.parent = parents[node], .children = children[node]});
      if (node % 2 == 0) continue;
      drawn.back().draft_token_ids = draft_ids[node];
      drawn.back().draft_probs = draft_probs;
    }
    std::ranges::stable_sort(drawn, {}, &DrawnChildren::parent);
    counts = {{random.Below(kVocab), 2}};
    if (random.Coin(0.3)) bias = {{random.Below(kVocab), 5}};
    if (random.Coin(0.3)) {
      mask = MaskWithout(kVocab, {random.Below(kVocab), token_ids[0]});
      masks.assign(num_nodes, mask.data());
    }
    if (random.Coin(0.6)) num_top_logprobs = random.Below(4);
    if (random.Coin(0.5)) rule = VerificationRule::kRejectionSampling;
    context_len = static_cast<uint32_t>(random.Below(1000));
  }
  LoneTree(LoneTree&&) = delete;  // the parts point to each other

  TreeToAccept At(int32_t first_logit_row) const {
    return {.first_logit_row = first_logit_row,
            .token_ids = token_ids,
            .parents = parents,
            .context_len = context_len,
            .sampling = sampling,
            .counts = counts,
            .bias = bias,
            .masks = masks,
            .num_top_logprobs = num_top_logprobs,
            .rule = rule,
            .num_rows = static_cast<int32_t>(parents.size()),
            .drawn = drawn};
  }

  SamplingParams sampling;
  std::vector<float> logits;
  std::vector<int32_t> parents, token_ids;
  std::vector<std::vector<int32_t>> children, draft_ids;
  std::vector<float> draft_probs = {0.75f, 0.25f};
  std::vector<DrawnChildren> drawn;
  std::vector<TokenCount> counts;
  std::vector<LogitBias> bias;
  std::vector<uint32_t> mask;
  std::vector<const uint32_t*> masks;
  std::optional<int32_t> num_top_logprobs;
  VerificationRule rule = VerificationRule::kKeyedDraw;
  uint32_t context_len = 0;
};

void ExpectSame(const TokenLogprob& a, const TokenLogprob& b) {
  EXPECT_EQ(a.token_id, b.token_id);
  EXPECT_EQ(a.logprob, b.logprob);
}

void ExpectSame(const AcceptedPath& a, const AcceptedPath& b) {
  EXPECT_EQ(a.status, b.status);
  EXPECT_EQ(a.token_ids, b.token_ids);
  EXPECT_EQ(a.node_idx, b.node_idx);
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
  for (size_t i = 0; i < a.logprobs.size(); ++i) {
    ExpectSame(a.logprobs[i].token, b.logprobs[i].token);
    ASSERT_EQ(a.logprobs[i].top.size(), b.logprobs[i].top.size());
    for (size_t j = 0; j < a.logprobs[i].top.size(); ++j) ExpectSame(a.logprobs[i].top[j], b.logprobs[i].top[j]);
  }
}

std::vector<AcceptedPath> Accept(const AcceptTreesOp& op, const std::vector<float>& logits,
                                 std::span<const TreeToAccept> trees) {
  std::vector<AcceptedPath> paths(trees.size());
  op({.logits = {logits.data(), DType::kF32, Shape(static_cast<int64_t>(logits.size()) / kWidth, kWidth)},
      .num_tokens = kVocab,
      .trees = trees,
      .paths = paths});
  return paths;
}

}  // namespace

void ExpectTreesToStandAlone(const AcceptTreesOp& op, int num_trees) {
  RandomValues random(17);
  std::vector<std::unique_ptr<LoneTree>> lone;
  std::vector<TreeToAccept> trees;
  std::vector<float> logits(3 * kWidth, NAN);  // rows of no tree
  for (int i = 0; i < num_trees; ++i) {
    lone.push_back(std::make_unique<LoneTree>(random));
    trees.push_back(lone[i]->At(static_cast<int32_t>(logits.size() / kWidth)));
    logits.insert(logits.end(), lone[i]->logits.begin(), lone[i]->logits.end());
  }
  const std::vector<AcceptedPath> together = Accept(op, logits, trees);
  size_t num_accepted = 0;
  for (int i = 0; i < num_trees; ++i) {
    SCOPED_TRACE(i);
    const TreeToAccept tree = lone[i]->At(0);
    ExpectSame(together[i], Accept(op, lone[i]->logits, {&tree, 1})[0]);
    num_accepted += together[i].token_ids.size() - 1;
  }
  EXPECT_GT(num_accepted, num_trees / 4);
}

}  // namespace foretoken::testing
