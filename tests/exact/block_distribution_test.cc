// SPDX-License-Identifier: Apache-2.0
// Block verification, enumerated over all outcomes. It is exact on chains whose form does not follow from drawn tokens,
// and it accepts at least as much as token-by-token verification. The server does not use it, because some of its uses
// are inexact. If this test fails, the reference is wrong, or the suite no longer detects the inexact uses.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "tests/exact/walk_distribution.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/distributions/small_distribution.h"
#include "tests/testing/distributions/small_proposer.h"

namespace foretoken::testing {
namespace {

using kernels::AcceptedPath;
using kernels::TreeToAccept;

struct BlockPair {
  SmallDistribution target;
  SmallDistribution draft;
};

std::vector<BlockPair> BlockPairs(const PathNumbering& paths, uint32_t seed) {
  RandomValues random(seed);
  const auto distribution = [&](DistributionKind kind) { return SmallDistribution::Random(paths, kind, random); };
  std::vector<BlockPair> pairs;
  for (int i = 0; i < 4; ++i)
    pairs.push_back({distribution(DistributionKind::kDense), distribution(DistributionKind::kDense)});
  pairs.push_back({distribution(DistributionKind::kWithZeros), distribution(DistributionKind::kDense)});
  pairs.push_back({distribution(DistributionKind::kWithZeros), distribution(DistributionKind::kWithZeros)});
  pairs.push_back({distribution(DistributionKind::kPoint), distribution(DistributionKind::kDense)});
  pairs.push_back({distribution(DistributionKind::kDense), distribution(DistributionKind::kPoint)});
  pairs.push_back({pairs[0].target, pairs[0].target});
  pairs.push_back({Without(pairs[0].target, pairs[5].draft), pairs[5].draft});
  pairs.push_back({pairs[0].target, Truncated(pairs[1].draft, 2)});
  return pairs;
}

SmallProposer Chain(const SmallDistribution& distribution, size_t len) {
  return {.distribution = &distribution,
          .wants_child = [len](const NodePlace& place) { return place.path.size() < len && place.siblings.empty(); }};
}

TEST(BlockDistribution, ChainsAreExactWithAnyNumberOfRows) {
  for (const int32_t num_tokens : {2, 3}) {
    const PathNumbering paths{.num_tokens = num_tokens, .max_len = 4};
    for (uint32_t seed = 0; seed < 3; ++seed) {
      for (const BlockPair& pair : BlockPairs(paths, seed)) {
        for (int32_t num_rows = 1; num_rows <= 3; ++num_rows) {
          const std::vector<SmallProposer> proposers = {Chain(pair.draft, 3)};
          EXPECT_LE(DistributionError(pair.target, proposers, BestRows(num_rows), ByBlock()), kExact);
        }
      }
    }
  }
}

// The end of a chain may depend on the chain's own tokens, because its last token is accepted as token by token.
TEST(BlockDistribution, TheEndOfAChainMayDependOnItsPath) {
  const PathNumbering paths{.num_tokens = 3, .max_len = 4};
  for (const BlockPair& pair : BlockPairs(paths, 10)) {
    const std::vector<SmallProposer> proposers = {
        {.distribution = &pair.draft, .wants_child = [](const NodePlace& place) {
           if (!place.siblings.empty() || place.path.size() == 3) return false;
           return place.path.size() < 2 || place.path[0] != place.path[1];
         }}};
    EXPECT_LE(DistributionError(pair.target, proposers, AllRows, ByBlock()), kExact);
  }
}

double MeanTokens(const SmallDistribution& target, const SmallProposer& proposer, const auto& walk) {
  double mean = 0;
  EnumerateOutcomes([&](Branches& branches) {
    const speculation::TokenTree tree = DrawTree(proposer, {}, branches);
    const size_t num_tokens = Emit(target, {}, tree, AllRows(tree), branches, walk).size();
    mean += branches.probability() * static_cast<double>(num_tokens);
  });
  return mean;
}

TEST(BlockDistribution, AcceptsAtLeastAsMuchAsTokenByTokenAndOftenMore) {
  const PathNumbering paths{.num_tokens = 3, .max_len = 4};
  int num_better = 0;
  for (const BlockPair& pair : BlockPairs(paths, 20)) {
    const SmallProposer proposer = Chain(pair.draft, 3);
    const double by_block = MeanTokens(pair.target, proposer, ByBlock());
    const double by_token = MeanTokens(pair.target, proposer, ByRejection());
    EXPECT_GE(by_block, by_token - kExact);
    if (by_block > by_token + 1e-6) ++num_better;
  }
  EXPECT_GE(num_better, 5);
}

// A later index that read one of these coins again would know its value already.
TEST(BlockDistribution, AllCoinsBelongToTheFirstIndex) {
  const PathNumbering paths{.num_tokens = 3, .max_len = 4};
  const BlockPair pair = BlockPairs(paths, 30)[0];
  const SmallProposer proposer = Chain(pair.draft, 3);
  std::set<size_t> lengths;
  EnumerateOutcomes([&](Branches& branches) {
    const speculation::TokenTree tree = DrawTree(proposer, {}, branches);
    const verifier::TestedTree tested = verifier::MakeTestedTree(0, &tree, AllRows(tree));
    const TreeToAccept to_accept = TreeOf(tested, 3, 17);
    SmallRows rows(pair.target, {}, to_accept);
    EnumeratedCoins coins(branches);
    AcceptedPath path;
    reference::WalkBlock(to_accept, rows, coins, path);
    ASSERT_EQ(std::vector<uint32_t>(coins.begun().begin(), coins.begun().end()), std::vector<uint32_t>{17});
    lengths.insert(path.token_ids.size());
  });
  EXPECT_EQ(lengths, (std::set<size_t>{1, 2, 3, 4}));
}

// A proposer that draws a second child of x_1 if the first child is token 0.
std::vector<SmallProposer> DrawsPairsAfterZero(const SmallDistribution& draft) {
  return {{.distribution = &draft, .wants_child = [](const NodePlace& place) {
             if (place.path.size() == 1 && place.siblings.size() == 1) return place.siblings[0] == 0;
             return place.path.size() < 2 && place.siblings.empty();
           }}};
}

// Chooses the rule by the drawn tree alone.
struct ByDrawnForm {
  void operator()(TreeToAccept tree, SmallRows& rows, EnumeratedCoins& coins, AcceptedPath& path) const {
    if (reference::IsSampledChain(tree)) {
      ByBlock()(tree, rows, coins, path);
    } else {
      ByRejection()(tree, rows, coins, path);
    }
  }
};

// A block may reject x_1 because of x_2, so the choice of block verification must not follow from drawn tokens. Token 1
// is drafted with probability .8 and accepted with .625. But it is always accepted if token 1 alone follows, which has
// draft_prob .25. So (.5, .5) becomes (.425, .575).
TEST(BlockDistribution, AChoiceOfTheRuleByTheDrawnFormIsDetected) {
  const PathNumbering paths{.num_tokens = 2, .max_len = 3};
  const std::vector<double> half = {.5, .5}, root = {.2, .8}, below = {.75, .25};
  const SmallDistribution target = SmallDistribution::Constant(paths, half);
  SmallDistribution draft = SmallDistribution::Constant(paths, below);
  std::copy(root.begin(), root.end(), draft.At({}).begin());
  const std::vector<SmallProposer> proposers = DrawsPairsAfterZero(draft);
  EXPECT_NEAR(DistributionOf(target, proposers, AllRows, ByDrawnForm()).FirstToken(1), .575, 1e-7);
  EXPECT_GE(DistributionError(target, proposers, AllRows, ByDrawnForm()), .075 - 1e-7);
  EXPECT_LE(DistributionError(target, proposers, AllRows, ByRejection()), kExact);
}

}  // namespace
}  // namespace foretoken::testing
