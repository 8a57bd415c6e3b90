// SPDX-License-Identifier: Apache-2.0
// Randomness that the suite must reject: coins and noise that are read twice, or that depend on other requests. If a
// test fails, the suite would miss such a fault in the server.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/keyed_coins.h"
#include "tests/exact/random_distributions.h"
#include "tests/exact/walk_distribution.h"
#include "tests/reference/block_verification.h"
#include "tests/reference/wrong_drafts.h"
#include "tests/reference/wrong_walks.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/cases/tree_columns.h"
#include "tests/testing/distributions/remembered_coins.h"
#include "tests/testing/distributions/small_distribution.h"
#include "tests/testing/distributions/small_proposer.h"

namespace foretoken::testing {
namespace {

using speculation::TokenTree;

// The distribution of two steps: `walk` verifies a chain, then the right rule verifies a chain of one. Coins are
// remembered.
template <typename Walk, typename Draft>
EmittedDistribution TwoSteps(const SmallDistribution& target, const Draft& draft_chain, const Walk& walk) {
  return DistributionOf(target, [&](Branches& branches) {
    RememberedCoins coins(branches);
    std::vector<int32_t> emitted;
    for (int step = 0; step < 2; ++step) {
      if (static_cast<int32_t>(emitted.size()) >= target.paths().max_len) break;
      const TokenTree tree = draft_chain(emitted, branches);
      const verifier::TestedTree tested = verifier::MakeTestedTree(0, &tree, AllRows(tree));
      const kernels::TreeToAccept to_accept = TreeOf(tested, tree.nodes.size(), 1 + emitted.size());
      SmallRows rows(target, emitted, to_accept);
      kernels::AcceptedPath path;
      if (step == 0) {
        walk(to_accept, rows, coins, path);
      } else {
        kernels::WalkByRejection(to_accept, rows, coins, path);
      }
      emitted.insert(emitted.end(), path.token_ids.begin(), path.token_ids.end());
    }
    return emitted;
  });
}

struct RightBlock {
  void operator()(const kernels::TreeToAccept& tree, SmallRows& rows, auto& coins, kernels::AcceptedPath& path) const {
    reference::WalkBlock(tree, rows, coins, path);
  }
};

struct RightTokens {
  void operator()(const kernels::TreeToAccept& tree, SmallRows& rows, auto& coins, kernels::AcceptedPath& path) const {
    kernels::WalkByRejection(tree, rows, coins, path);
  }
};

TEST(WrongCoins, ABlocksCoinSeenAgainAtALaterIndexIsCaught) {
  const auto error_of = [](const auto& walk) {
    return OverRandomDistributions([&](const SmallDistribution& target, const SmallDistribution& draft) {
      const auto draft_chain = [&](std::span<const int32_t> context, Branches& branches) {
        return DrawTree(Full(draft, context.empty() ? 2 : 1, 1), context, branches);
      };
      return TwoSteps(target, draft_chain, walk).Error();
    });
  };
  EXPECT_GT(error_of(reference::BlockCoinsOfLaterIndices()).mean, 1e-3);
  EXPECT_LE(error_of(RightBlock()).most, kExact);
  EXPECT_LE(error_of(RightTokens()).most, kExact);
}

// A block reads tokens beyond its first rejected token. A proposer that reuses the noise drafts these tokens again, so
// the coins have already read them. Token-by-token verification reads nothing beyond a rejection, so there the reuse is
// no fault.
TEST(WrongCoins, DraftNoiseOfAnIndexUsedAgainAfterABlockIsCaught) {
  const auto error_of = [](const auto& walk) {
    return OverRandomDistributions([&](const SmallDistribution& target, const SmallDistribution& any) {
      const SmallDistribution draft =
          SmallDistribution::Constant(kPaths, any.At({}));  // constant, so the same noise makes the same token
      std::vector<int32_t> by_index;
      const auto draft_chain = [&](std::span<const int32_t> context, Branches& branches) {
        const TokenTree tree = DrawTree(Full(draft, context.empty() ? 3 : 0, 1), {}, branches);
        if (context.empty()) by_index = testing::TokenIds(tree);
        TokenTree chain = tree;
        if (!context.empty() && context.size() < by_index.size()) {
          chain = {.nodes = {{.token_id = by_index[context.size()], .proposers = 1}}};
          chain = reference::ClaimSampled(chain, draft);
        }
        return chain;
      };
      return TwoSteps(target, draft_chain, walk).Error();
    });
  };
  EXPECT_GT(error_of(RightBlock()).mean, 1e-3);
  EXPECT_LE(error_of(RightTokens()).most, kExact);
}

// Wrong coins: a global generator gives the first coin to the first request.
class GlobalCoins {
 public:
  GlobalCoins(uint64_t, uint32_t) {}
  void Begin(uint32_t) {}
  bool Accept(double target_prob, double draft_prob) { return Next() * draft_prob < target_prob; }
  int32_t Draw(std::span<const double> weights) { return kernels::IndexAt(weights, Next()); }

 private:
  static double Next() {
    static std::mt19937 engine(1);
    return engine() * 0x1p-32;
  }
};

// True if two requests get the same tokens in either order.
template <typename Coins>
bool IsIndependentOfOrder() {
  RandomValues random(7);
  const SmallDistribution target = SmallDistribution::Random(kPaths, DistributionKind::kDense, random);
  const auto emit = [&](uint64_t seed) {
    const TokenTree tree;
    const verifier::TestedTree tested = verifier::MakeTestedTree(0, &tree, {});
    std::vector<int32_t> emitted;
    for (int step = 0; step < 3; ++step) {
      const kernels::TreeToAccept to_accept = TreeOf(tested, 0, emitted.size());
      SmallRows rows(target, emitted, to_accept);
      Coins coins(seed, 0);
      kernels::AcceptedPath path;
      kernels::WalkByRejection(to_accept, rows, coins, path);
      emitted.push_back(path.token_ids.at(0));
    }
    return emitted;
  };
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<int32_t> first = emit(seed), second = emit(seed + 1000);
    if (emit(seed + 1000) != second || emit(seed) != first) return false;
  }
  return true;
}

TEST(WrongCoins, CoinsFromAGlobalGeneratorAreCaught) {
  EXPECT_FALSE(IsIndependentOfOrder<GlobalCoins>());
  EXPECT_TRUE(IsIndependentOfOrder<kernels::KeyedCoins>());
}

}  // namespace
}  // namespace foretoken::testing
