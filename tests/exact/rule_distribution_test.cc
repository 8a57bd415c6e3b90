// SPDX-License-Identifier: Apache-2.0
// Rejection sampling, enumerated: for any draft the emitted tokens follow the target's distribution, to the last bits
// of a double. If this test fails, rejection-sampled outputs do not have the model's distribution.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/exact/walk_distribution.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/cases/tree_shapes.h"
#include "tests/testing/distributions/small_distribution.h"
#include "tests/testing/distributions/small_proposer.h"

namespace foretoken::testing {
namespace {

using speculation::TokenTree;

// A target and a draft. The pairs cover the possible relations between the two.
struct DistributionPair {
  std::string name;
  SmallDistribution target;
  SmallDistribution draft;
};

std::vector<DistributionPair> DistributionPairs(const PathNumbering& paths, uint32_t seed) {
  RandomValues random(seed);
  const auto dense = [&] { return SmallDistribution::Random(paths, DistributionKind::kDense, random); };
  const auto with_zeros = [&] { return SmallDistribution::Random(paths, DistributionKind::kWithZeros, random); };
  const auto point = [&] { return SmallDistribution::Random(paths, DistributionKind::kPoint, random); };
  std::vector<DistributionPair> pairs;
  pairs.push_back({"dense", dense(), dense()});
  pairs.push_back({"masked target", with_zeros(), dense()});
  pairs.push_back({"zeros in both", with_zeros(), with_zeros()});
  pairs.push_back({"truncated draft", dense(), Truncated(dense(), paths.num_tokens - 1)});
  pairs.push_back({"greedy target", point(), dense()});
  pairs.push_back({"greedy draft", dense(), point()});
  const SmallDistribution target = dense();
  pairs.push_back({"equal", target, target});
  const SmallDistribution half = with_zeros();
  pairs.push_back({"disjoint", Without(dense(), half), half});
  return pairs;
}

SmallProposer Shaped(const SmallDistribution& distribution, const TreeShape& shape, Drawing drawing,
                     uint32_t proposer_idx = 0) {
  return {
      .distribution = &distribution,
      .drawing = drawing,
      .wants_child = [&shape](const NodePlace& place) { return HasChild(shape, place.ranks, place.siblings.size()); },
      .proposer_idx = proposer_idx};
}

// Checks every shape of at most `depth` and `max_children`, with every kind of distribution and drawing.
void ExpectExact(int32_t num_tokens, int32_t depth, int32_t max_children) {
  const PathNumbering paths{.num_tokens = num_tokens, .max_len = depth + 1};
  uint32_t seed = 1;
  for (const TreeShape& shape : AllShapes(depth, max_children)) {
    const std::vector<DistributionPair> pairs = DistributionPairs(paths, seed);
    for (const Drawing drawing : {Drawing::kSampled, Drawing::kKeyed, Drawing::kBest}) {
      // Each shape uses two kinds of distributions. Over all shapes each kind is used with every drawing.
      for (const DistributionPair& pair : {pairs[seed % pairs.size()], pairs[(seed / 3 + 5) % pairs.size()]}) {
        const std::vector<SmallProposer> proposers = {Shaped(pair.draft, shape, drawing)};
        EXPECT_LE(DistributionError(pair.target, proposers, AllRows, ByRejection()), kExact)
            << pair.name << ", shape " << NameOf(shape) << ", drawing " << static_cast<int>(drawing);
      }
    }
    ++seed;
  }
}

TEST(RejectionDistribution, ChainsOfUpToThreeAreExact) {
  ExpectExact(3, 3, 1);
  ExpectExact(4, 3, 1);
}

TEST(RejectionDistribution, AllTreesOfTwoTokensAndDepthThreeAreExact) { ExpectExact(2, 3, 2); }

TEST(RejectionDistribution, AllTreesOfThreeTokensAndDepthTwoAreExact) { ExpectExact(3, 2, 2); }

TEST(RejectionDistribution, WideNodesAreExact) { ExpectExact(4, 1, 4); }

TEST(RejectionDistributionLong, AllTreesOfThreeTokensAndThreeChildrenAreExact) { ExpectExact(3, 2, 3); }

TEST(RejectionDistribution, EveryKindOfDistributionIsExactOnAWholeTree) {
  const PathNumbering paths{.num_tokens = 3, .max_len = 3};
  const TreeShape shape = FullShape(2, 2);
  for (const uint32_t seed : {100, 101}) {
    for (const DistributionPair& pair : DistributionPairs(paths, seed)) {
      const std::vector<SmallProposer> proposers = {Shaped(pair.draft, shape, Drawing::kSampled)};
      EXPECT_LE(DistributionError(pair.target, proposers, AllRows, ByRejection()), kExact) << pair.name;
    }
  }
}

// The number of a node's children may depend on the path, the distribution and earlier siblings.
TEST(RejectionDistribution, NumbersOfChildrenMayDependOnPathDistributionAndEarlierSiblings) {
  const PathNumbering paths{.num_tokens = 3, .max_len = 3};
  for (uint32_t seed = 0; seed < 12; ++seed) {
    for (const DistributionPair& pair : DistributionPairs(paths, 200 + seed)) {
      const std::vector<SmallProposer> proposers = {
          {.distribution = &pair.draft, .wants_child = [&](const NodePlace& place) {
             if (place.path.size() == 2) return false;
             const double first = pair.draft.At(place.path)[seed % 3];
             const int32_t last = place.siblings.empty() ? -1 : place.siblings.back();
             return place.siblings.size() < 2 + seed % 2 && (first + 0.4 * last + 0.1 * place.path.size() < 0.6);
           }}};
      EXPECT_LE(DistributionError(pair.target, proposers, AllRows, ByRejection()), kExact) << pair.name << ' ' << seed;
    }
  }
}

TEST(RejectionDistribution, ProposersThatMeetAtANodeAreExact) {
  const PathNumbering paths{.num_tokens = 3, .max_len = 3};
  const TreeShape two = FullShape(1, 2), pair_of_two = FullShape(2, 1), one = FullShape(1, 1);
  using enum Drawing;
  const Drawing drawings[][3] = {{kSampled, kSampled, kSampled}, {kSampled, kBest, kSampled},
                                 {kBest, kSampled, kKeyed},      {kKeyed, kSampled, kBest},
                                 {kSampled, kKeyed, kBest},      {kKeyed, kBest, kSampled}};
  for (uint32_t seed = 0; seed < 3; ++seed) {
    const std::vector<DistributionPair> pairs = DistributionPairs(paths, 300 + seed),
                                        others = DistributionPairs(paths, 400 + seed);
    for (size_t i = 0; i < pairs.size(); ++i) {
      for (const auto& [first, second, third] : drawings) {
        const std::vector<SmallProposer> proposers = {Shaped(pairs[i].draft, two, first, 0),
                                                      Shaped(others[i].draft, pair_of_two, second, 1),
                                                      Shaped(others[0].draft, one, third, 2)};
        EXPECT_LE(DistributionError(pairs[i].target, proposers, AllRows, ByRejection()), kExact)
            << pairs[i].name << ' ' << seed;
      }
    }
  }
}

// Tests all 64 ways to give rows to the paths of two binary tokens.
TEST(RejectionDistribution, MissingRowsMayDependOnTheirPath) {
  const PathNumbering paths{.num_tokens = 2, .max_len = 4};
  const TreeShape shape = FullShape(3, 2);
  const DistributionPair pair = DistributionPairs(paths, 500)[0];
  for (uint32_t has_row = 0; has_row < 64; ++has_row) {
    const RowChoice rows = [&](const TokenTree& tree) {
      std::vector<std::vector<int32_t>> node_paths;
      std::vector<bool> kept;
      std::vector<int32_t> node_idx;
      for (int32_t node = 0; node < tree.num_nodes(); ++node) {
        const int32_t parent = tree.nodes[node].parent;
        std::vector<int32_t> path = parent < 0 ? std::vector<int32_t>() : node_paths[parent];
        path.push_back(tree.nodes[node].token_id);
        const bool parent_kept = parent < 0 || kept[parent];
        kept.push_back(parent_kept && path.size() <= 2 && (has_row >> (paths.NumberOf(path) - 1) & 1));
        if (kept.back()) node_idx.push_back(node);
        node_paths.push_back(path);
      }
      return node_idx;
    };
    const std::vector<SmallProposer> proposers = {Shaped(pair.draft, shape, Drawing::kSampled)};
    EXPECT_LE(DistributionError(pair.target, proposers, rows, ByRejection()), kExact) << has_row;
  }
}

TEST(RejectionDistribution, ARowBudgetSpentOnTheBestNodesIsExact) {
  const PathNumbering paths{.num_tokens = 3, .max_len = 3};
  const TreeShape shape = FullShape(2, 2), one = FullShape(1, 1);
  const std::vector<DistributionPair> pairs = DistributionPairs(paths, 600);
  for (const DistributionPair& pair : pairs) {
    const std::vector<SmallProposer> proposers = {Shaped(pair.draft, shape, Drawing::kSampled),
                                                  Shaped(pairs[0].target, one, Drawing::kBest, 1)};
    for (int32_t row_budget = 0; row_budget <= 4; ++row_budget) {
      EXPECT_LE(DistributionError(pair.target, proposers, BestRows(row_budget), ByRejection()), kExact)
          << pair.name << ' ' << row_budget;
    }
  }
}

}  // namespace
}  // namespace foretoken::testing
