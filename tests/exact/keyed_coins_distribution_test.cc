// SPDX-License-Identifier: Apache-2.0
// The server's keyed coins, over whole generations of chains. The enumeration proves exactness for ideal coins; this
// test checks the real coins. If it fails, rejection sampling on a server does not follow the model's distribution.
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "common/speculation/tested_tree.h"
#include "kernels/keyed_coins.h"
#include "kernels/rejection_sampling.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/distributions/g_test.h"
#include "tests/testing/distributions/small_distribution.h"
#include "tests/testing/distributions/small_proposer.h"

namespace foretoken::testing {
namespace {

constexpr int kNumSeeds = 200000;
constexpr double kCoinAlpha = 1e-4 / 3;  // for one of the tests
const PathNumbering kPaths{.num_tokens = 3, .max_len = 3};

// The proposers' draws, from their own generator.
class RandomBranches {
 public:
  explicit RandomBranches(uint32_t seed) : random_(seed) {}
  int32_t Choose(std::span<const double> weights) { return kernels::IndexAt(weights, random_.Uniform()); }

 private:
  RandomValues random_;
};

// Draws a chain from the draft at the end of the context.
speculation::TokenTree DrawChain(const SmallDistribution& draft, std::vector<int32_t> context,
                                 RandomBranches& branches) {
  speculation::TokenTree tree;
  for (int32_t node = 0; node < 2 && static_cast<int32_t>(context.size()) < kPaths.max_len; ++node) {
    const std::span<const double> distribution = draft.At(context);
    tree.Append({.token_id = branches.Choose(distribution), .parent = node - 1, .proposers = 1});
    tree.sampled.push_back({.parent = node - 1,
                            .children = {node},
                            .draft = std::make_shared<speculation::DraftDistribution>(DraftOf(distribution))});
    context.push_back(tree.nodes.back().token_id);
  }
  return tree;
}

// Counts each sequence over many seeds. Every step tosses the coins of the index that `coin_index` returns.
template <typename CoinIndex>
GTestResult FitOfCoins(const CoinIndex& coin_index) {
  RandomValues random(1);
  const SmallDistribution target = SmallDistribution::Random(kPaths, DistributionKind::kDense, random);
  const SmallDistribution draft = SmallDistribution::Random(kPaths, DistributionKind::kDense, random);
  RandomBranches branches(2);
  const size_t first_whole = PathNumbering{.num_tokens = 3, .max_len = 2}.num_paths();
  std::vector<int64_t> counts(kPaths.num_paths() - first_whole, 0);
  for (int seed = 0; seed < kNumSeeds; ++seed) {
    std::vector<int32_t> emitted;
    while (static_cast<int32_t>(emitted.size()) < kPaths.max_len) {
      const speculation::TokenTree tree = DrawChain(draft, emitted, branches);
      std::vector<int32_t> row_node_idx = {0, 1};
      row_node_idx.resize(std::min<size_t>(2, kPaths.max_len - emitted.size() - 1));
      const verifier::TestedTree tested = verifier::MakeTestedTree(0, &tree, row_node_idx);
      const kernels::TreeToAccept to_accept = TreeOf(tested, row_node_idx.size(), coin_index(emitted.size()));
      SmallRows rows(target, emitted, to_accept);
      kernels::KeyedCoins coins(static_cast<uint64_t>(seed), 0);
      kernels::AcceptedPath path;
      kernels::WalkByRejection(to_accept, rows, coins, path);
      emitted.insert(emitted.end(), path.token_ids.begin(), path.token_ids.end());
    }
    emitted.resize(kPaths.max_len);
    ++counts[kPaths.NumberOf(emitted) - first_whole];
  }
  return GTest(counts, EmittedDistribution(target).TargetProbs());
}

TEST(KeyedCoinsDistribution, IsTheTargets) {
  const GTestResult fit = FitOfCoins([](size_t index) { return index; });
  EXPECT_GE(fit.p_value, kCoinAlpha) << fit;
}

TEST(KeyedCoinsDistribution, CoinsThatEveryStepTossesAgainAreDetected) {
  const GTestResult fit = FitOfCoins([](size_t) { return size_t{0}; });
  EXPECT_LT(fit.p_value, kCoinAlpha) << fit;
}

// For each of many seeds a request without guesses draws a token. A second request with the same seed, and with this
// nonce, is given that token as a guess. Counts the tokens of the second requests.
GTestResult FitOfRememberedGuesses(uint64_t nonce) {
  constexpr PathNumbering kOne{.num_tokens = 3, .max_len = 1};
  const std::vector<double> probs = {0.1, 0.8, 0.1};
  const SmallDistribution target = SmallDistribution::Constant(kOne, probs);
  std::vector<int64_t> counts(probs.size(), 0);
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    const kernels::SamplingParams before{.seed = seed}, now{.seed = seed, .coin_nonce = nonce};
    const auto emit = [&](const speculation::TokenTree& tree, const kernels::SamplingParams& sampling) {
      const verifier::TestedTree tested = verifier::MakeTestedTree(0, &tree, {});
      const kernels::TreeToAccept to_accept = TreeOf(tested, 0, /*context_len=*/0);
      SmallRows rows(target, {}, to_accept);
      kernels::KeyedCoins coins(sampling.coin_key(), 0);
      kernels::AcceptedPath path;
      kernels::WalkByRejection(to_accept, rows, coins, path);
      return path.token_ids.at(0);
    };
    speculation::TokenTree remembered;
    remembered.Append({.token_id = emit({}, before), .proposers = 1});
    ++counts[emit(remembered, now)];
  }
  return GTest(counts, probs);
}

TEST(KeyedCoinsDistribution, IsTheTargetsIfGuessesRememberAnEarlierRequest) {
  const GTestResult fit = FitOfRememberedGuesses(/*nonce=*/0x9E3779B97F4A7C15);
  EXPECT_GE(fit.p_value, kCoinAlpha) << fit;
}

TEST(KeyedCoinsDistribution, CoinsThatAnEarlierRequestTossedAreDetected) {
  const GTestResult fit = FitOfRememberedGuesses(/*nonce=*/0);
  EXPECT_LT(fit.p_value, kCoinAlpha) << fit;
}

}  // namespace
}  // namespace foretoken::testing
