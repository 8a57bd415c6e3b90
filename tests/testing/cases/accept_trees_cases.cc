// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/cases/accept_trees_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/reference/sampling.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/cases/token_mask.h"
#include "tests/testing/paths.h"

namespace foretoken::testing {
namespace {

using kernels::AcceptedPath;
using kernels::DrawStatus;
using kernels::DType;
using kernels::LogitBias;
using kernels::RowLogprobs;
using kernels::SamplingParams;
using kernels::Shape;
using kernels::TokenCount;
using kernels::TreeToAccept;

constexpr const char* kWalkTable = "tests/cases/accept_trees.txt";
constexpr int32_t kNumTokens = 8;
constexpr int32_t kWidth = 11;  // the row is wider than the vocabulary, and the largest logits lie beyond it
constexpr uint32_t kContextLen = 10;

struct WalkCase {
  std::string name;
  std::vector<int32_t> parents, token_ids;
  std::vector<float> logits;
  std::map<int32_t, std::vector<uint32_t>> node_masks;  // by node
  float presence_penalty = 0;
  std::vector<int32_t> path, emitted;
  DrawStatus status = DrawStatus::kOk;

  float* row(int32_t node_idx) { return logits.data() + node_idx * kWidth; }
};

// Applies one line, "keyword values", to the case.
void ReadLine(const std::string& line, WalkCase& walk) {
  std::istringstream words(line);
  std::string keyword, word;
  words >> keyword;
  std::vector<std::string> values;
  while (words >> word) values.push_back(word);
  const auto before_colon = [](const std::string& pair) { return pair.substr(0, pair.find(':')); };
  const auto after_colon = [](const std::string& pair) { return std::stoi(pair.substr(pair.find(':') + 1)); };
  if (keyword == "tree") {
    for (const std::string& value : values) {
      walk.parents.push_back(before_colon(value) == "-" ? -1 : std::stoi(before_colon(value)));
      walk.token_ids.push_back(after_colon(value));
    }
    walk.logits.assign(walk.parents.size() * kWidth, 0);
  } else if (keyword == "draws") {
    ASSERT_EQ(values.size(), walk.parents.size());
    for (size_t i = 0; i < values.size(); ++i) {
      walk.row(i)[std::stoi(values[i])] = 10;
      for (int32_t id = kNumTokens; id < kWidth; ++id) walk.row(i)[id] = 100;
    }
  } else if (keyword == "second") {
    for (const std::string& value : values) walk.row(std::stoi(before_colon(value)))[after_colon(value)] = 9;
  } else if (keyword == "mask") {
    for (const std::string& value : values) {
      std::vector<uint32_t>& words =
          walk.node_masks.try_emplace(std::stoi(value), testing::MaskWithout(kNumTokens, {})).first->second;
      words[0] &= ~(1u << after_colon(value));
    }
  } else if (keyword == "presence") {
    walk.presence_penalty = 5;
  } else if (keyword == "bad") {
    walk.row(std::stoi(values[0]))[6] = std::numeric_limits<float>::quiet_NaN();
  } else if (keyword == "empty") {
    std::fill_n(walk.row(std::stoi(values[0])), kNumTokens, -std::numeric_limits<float>::infinity());
  } else if (keyword == "path") {
    for (const std::string& value : values) walk.path.push_back(std::stoi(value));
  } else if (keyword == "emit") {
    for (const std::string& value : values) walk.emitted.push_back(std::stoi(value));
  } else if (keyword == "status") {
    walk.status = values[0] == "ok"           ? DrawStatus::kOk
                  : values[0] == "non_finite" ? DrawStatus::kNonFiniteLogits
                                              : DrawStatus::kEmptySupport;
  } else {
    FAIL() << "no such keyword: " << line;
  }
}

std::vector<WalkCase> ReadCases() {
  std::ifstream file(SourcePath(kWalkTable));
  std::vector<WalkCase> cases;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("case ")) {
      cases.emplace_back().name = line.substr(5);
    } else {
      ReadLine(line, cases.back());
    }
  }
  return cases;
}

// Returns the masks of a case. A node without a mask has a null pointer; a case without masks has an empty list.
std::vector<const uint32_t*> MasksOf(const WalkCase& walk) {
  std::vector<const uint32_t*> masks(walk.node_masks.empty() ? 0 : walk.parents.size());
  for (const auto& [node_idx, words] : walk.node_masks) masks[node_idx] = words.data();
  return masks;
}

TreeToAccept TreeOf(const WalkCase& walk, std::span<const uint32_t* const> masks) {
  return {.token_ids = walk.token_ids,
          .parents = walk.parents,
          .context_len = kContextLen,
          .sampling = {.temperature = 0, .presence_penalty = walk.presence_penalty},
          .masks = masks};
}

// One sequence with a random tree and all its inputs. Its mask changes at some index, as at min_tokens.
struct RandomTree {
  static constexpr int32_t kVocab = 9;
  static constexpr int32_t kStride = 12;

  RandomTree(RandomValues& random, const SamplingParams& sampling) : sampling(sampling) {
    const int32_t num_nodes = 1 + random.Below(30);
    std::vector<int32_t> depths;
    for (int32_t node = 0; node < num_nodes; ++node) {
      parents.push_back(node == 0 ? -1 : random.Below(node));
      depths.push_back(node == 0 ? 0 : depths[parents.back()] + 1);
      token_ids.push_back(random.Below(kVocab));
    }
    logits = random.Normals(num_nodes * kStride, 1);
    context_len = static_cast<uint32_t>(random.Below(1000));
    counts = {{1, 0}, {2, 3}, {3, 1}};
    if (random.Coin(0.5)) {
      early_mask = testing::MaskWithout(kVocab, {random.Below(kVocab), random.Below(kVocab)});
      if (random.Coin(0.5)) late_mask = testing::MaskWithout(kVocab, {random.Below(kVocab)});
      mask_changes_at = context_len + static_cast<uint32_t>(random.Below(4));
      for (const int32_t depth : depths) {
        const std::vector<uint32_t>& mask = MaskAt(context_len + static_cast<uint32_t>(depth));
        masks.push_back(mask.empty() ? nullptr : mask.data());
      }
    }
  }

  const std::vector<uint32_t>& MaskAt(uint32_t t) const { return t < mask_changes_at ? early_mask : late_mask; }

  TreeToAccept At(int32_t first_logit_row) const {
    return {.first_logit_row = first_logit_row,
            .token_ids = token_ids,
            .parents = parents,
            .context_len = context_len,
            .sampling = sampling,
            .counts = counts,
            .masks = masks};
  }

  // Decodes the tokens one after another, as far as the tree has their rows.
  std::vector<int32_t> DecodePlainly() const {
    std::vector<int32_t> emitted;
    for (size_t node = 0; node < parents.size();) {
      const float* row = logits.data() + node * kStride;
      const uint32_t t = context_len + static_cast<uint32_t>(emitted.size());
      // Plain decoding has no path, so the emitted tokens are in the counts.
      std::vector<TokenCount> all_counts = counts;
      for (const int32_t id : emitted) {
        const auto known = std::ranges::find(all_counts, id, &TokenCount::token_id);
        if (known == all_counts.end()) {
          all_counts.push_back({id, 1});
        } else {
          ++known->num_generated;
        }
      }
      const auto token = reference::DrawToken({.logits = {row, row + kVocab},
                                               .sampling = sampling,
                                               .t = t,
                                               .bias = {},
                                               .counts = all_counts,
                                               .path_token_ids = {},
                                               .mask = MaskAt(t)});
      emitted.push_back(*token);
      size_t child = node + 1;
      while (child < parents.size() && (parents[child] != node || token_ids[child] != *token)) ++child;
      node = child;
    }
    return emitted;
  }

  SamplingParams sampling;
  std::vector<int32_t> parents, token_ids;
  std::vector<float> logits;
  uint32_t context_len = 0;
  std::vector<TokenCount> counts;
  std::vector<uint32_t> early_mask, late_mask;
  uint32_t mask_changes_at = 0;
  std::vector<const uint32_t*> masks;
};

}  // namespace

bool HasWalkTable() { return std::ifstream(SourcePath(kWalkTable)).good(); }

void ExpectWalksAsTheTableSays(const AcceptTreesOp& op) {
  std::vector<WalkCase> cases = ReadCases();
  ASSERT_GE(cases.size(), 14);
  for (WalkCase& walk : cases) {
    SCOPED_TRACE(walk.name);
    const std::vector<const uint32_t*> masks = MasksOf(walk);
    const TreeToAccept tree = TreeOf(walk, masks);
    AcceptedPath path;
    op({.logits = {walk.logits.data(), DType::kF32, Shape(walk.parents.size(), kWidth)},
        .num_tokens = kNumTokens,
        .trees = {&tree, 1},
        .paths = {&path, 1}});
    EXPECT_EQ(path.node_idx, walk.path);
    EXPECT_EQ(path.token_ids, walk.emitted);
    EXPECT_EQ(path.status, walk.status);
    EXPECT_TRUE(path.logprobs.empty());
  }
}

void ExpectPlainDecoding(const AcceptTreesOp& op, int num_rounds) {
  const std::vector<SamplingParams> samplings = {
      {.temperature = 0.7f, .top_p = 0.9f, .frequency_penalty = 0.5f, .seed = 7},
      {.temperature = 0, .repetition_penalty = 1.8f},
      {.temperature = 0.7f, .repetition_penalty = 0.6f, .seed = 8},
      {.temperature = 0, .presence_penalty = 1.5f},
      {.temperature = 0.7f, .presence_penalty = -1.5f, .seed = 9},
      {.temperature = 0, .frequency_penalty = 0.7f},
      {.temperature = 0.7f, .repetition_penalty = 1.2f, .presence_penalty = 1, .frequency_penalty = -0.5f, .seed = 10}};
  RandomValues random(10);
  for (int round = 0; round < num_rounds; ++round) {
    std::vector<RandomTree> sequences;
    sequences.reserve(20);
    for (int i = 0; i < 20; ++i) sequences.emplace_back(random, samplings[random.Below(samplings.size())]);
    std::vector<TreeToAccept> trees;
    std::vector<float> logits;
    for (const RandomTree& sequence : sequences) {
      trees.push_back(sequence.At(static_cast<int32_t>(logits.size() / RandomTree::kStride)));
      logits.insert(logits.end(), sequence.logits.begin(), sequence.logits.end());
    }
    std::vector<AcceptedPath> paths(trees.size());
    op({.logits = {logits.data(), DType::kF32, Shape(logits.size() / RandomTree::kStride, RandomTree::kStride)},
        .num_tokens = RandomTree::kVocab,
        .trees = trees,
        .paths = paths});
    for (size_t i = 0; i < trees.size(); ++i) {
      ASSERT_EQ(paths[i].token_ids, sequences[i].DecodePlainly()) << round << " " << i;
    }
  }
}

void ExpectLogprobsOfTheUnmodifiedRow(const AcceptTreesOp& op) {
  RandomValues random(11);
  constexpr int32_t kVocab = 3001;
  std::vector<float> logits = random.Normals(kVocab + 5, 3);
  logits[kVocab + 2] = 40;  // padding cannot be drawn, but has its share of the row's probability
  const std::vector<int32_t> token_ids = {0}, parents = {-1};
  const std::vector<LogitBias> bias = {{5, 50}};
  const TreeToAccept tree{.token_ids = token_ids,
                          .parents = parents,
                          .context_len = 1,
                          .sampling = {.temperature = 0.5f, .top_k = 3},
                          .bias = bias,
                          .num_top_logprobs = 4};
  AcceptedPath path;
  op({.logits = {logits.data(), DType::kF32, Shape(1, kVocab + 5)},
      .num_tokens = kVocab,
      .trees = {&tree, 1},
      .paths = {&path, 1}});
  const std::vector<double> expected = reference::LogSoftmax({logits.data(), kVocab + 5});
  ASSERT_EQ(path.token_ids, std::vector<int32_t>{5});
  ASSERT_EQ(path.logprobs.size(), 1);
  // The sum's relative error is n u within a block of 1024 and an ulp per exponential; the result's rounding is u
  // |x|.
  const double tolerance = 1100 * 0x1p-24 + 20 * 0x1p-24;
  EXPECT_EQ(path.logprobs[0].token.token_id, 5);
  EXPECT_NEAR(path.logprobs[0].token.logprob, expected[5], tolerance);
  ASSERT_EQ(path.logprobs[0].top.size(), 4);
  std::vector<int32_t> order(kVocab + 5);
  for (int32_t id = 0; id < kVocab + 5; ++id) order[id] = id;
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(path.logprobs[0].top[i].token_id, order[i]);
    EXPECT_NEAR(path.logprobs[0].top[i].logprob, expected[order[i]], tolerance);
  }
}

void ExpectScoresOfEachRowsOwnToken(const ScoreTokensOp& op) {
  RandomValues random(12);
  std::vector<float> logits = random.Normals(5 * 40, 2);
  logits[3 * 40 + 7] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<int32_t> token_ids = {0, 31, 7};
  std::vector<RowLogprobs> scores(3);
  op({.logits = {logits.data(), DType::kF32, Shape(5, 40)},
      .first_row = 1,
      .token_ids = token_ids,
      .num_top = 2,
      .scores = scores});
  for (int i = 0; i < 2; ++i) {
    const std::vector<double> expected = reference::LogSoftmax({logits.data() + (i + 1) * 40, 40});
    EXPECT_EQ(scores[i].token.token_id, token_ids[i]);
    const double tolerance = (40 + 20 + 20) * 0x1p-24;  // as above: 40 terms, their exponentials, |x| below 20
    EXPECT_NEAR(scores[i].token.logprob, expected[token_ids[i]], tolerance);
    ASSERT_EQ(scores[i].top.size(), 2);
    EXPECT_GE(scores[i].top[0].logprob, scores[i].top[1].logprob);
  }
  EXPECT_TRUE(std::isnan(scores[2].token.logprob));
  EXPECT_TRUE(scores[2].top.empty());
}

}  // namespace foretoken::testing
