// SPDX-License-Identifier: Apache-2.0
// The blocks of the K/V cache. If this test fails, sequences overwrite each other's context, tenants share prefixes, or
// the cache loses memory.
#include "common/model/block_pool.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace foretoken::model {
namespace {

constexpr int32_t kBlock = kernels::kKvBlockSize;

std::vector<int32_t> Tokens(int32_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Allocates and registers every full block of `tokens`. Returns the blocks, still held.
std::vector<int32_t> Store(BlockPool& pool, const std::string& tenant, const std::vector<int32_t>& tokens) {
  std::vector<int32_t> blocks;
  PrefixId prefix = kEmptyPrefix;
  for (size_t i = 0; i + kBlock <= tokens.size(); i += kBlock) {
    blocks.push_back(*pool.Allocate(Evict::kYes));
    prefix = pool.Insert(tenant, prefix, std::span(tokens).subspan(i).first<kBlock>(), blocks.back());
  }
  return blocks;
}

void ReleaseAll(BlockPool& pool, const std::vector<int32_t>& blocks) {
  for (size_t i = blocks.size(); i-- > 0;) pool.Release(blocks[i]);
}

TEST(BlockPool, FindsTheLongestStoredPrefixAndSharesItsBlocks) {
  BlockPool pool(8);
  std::vector<int32_t> tokens = Tokens(3 * kBlock);
  const std::vector<int32_t> blocks = Store(pool, "a", tokens);
  tokens[2 * kBlock + 5] = 999;
  const BlockPool::Prefix prefix = pool.Find("a", tokens);
  EXPECT_EQ(prefix.blocks, (std::vector<int32_t>{blocks[0], blocks[1]}));
  ReleaseAll(pool, blocks);
  pool.CheckIntegrity();
  EXPECT_EQ(pool.num_cached(), 1);  // the third block; the finder holds the first two
  ReleaseAll(pool, prefix.blocks);
  EXPECT_EQ(pool.num_cached(), 3);
  pool.CheckIntegrity();
}

TEST(BlockPool, TenantsDoNotSeeEachOther) {
  BlockPool pool(8);
  ReleaseAll(pool, Store(pool, "a", Tokens(2 * kBlock)));
  EXPECT_TRUE(pool.Find("b", Tokens(2 * kBlock)).blocks.empty());
  EXPECT_EQ(pool.Find("a", Tokens(2 * kBlock)).blocks.size(), 2);
}

TEST(BlockPool, SameTokensBelowAnotherParentAreAnotherPrefix) {
  BlockPool pool(8);
  std::vector<int32_t> first = Tokens(kBlock, 100);
  std::vector<int32_t> second = Tokens(kBlock, 200);
  const std::vector<int32_t> shared = Tokens(kBlock, 300);
  first.insert(first.end(), shared.begin(), shared.end());
  second.insert(second.end(), shared.begin(), shared.end());
  ReleaseAll(pool, Store(pool, "a", first));
  ReleaseAll(pool, Store(pool, "a", std::vector<int32_t>(second.begin(), second.begin() + kBlock)));
  EXPECT_EQ(pool.Find("a", second).blocks.size(), 1);
}

TEST(BlockPool, SpeculationNeverEvicts) {
  BlockPool pool(2);
  ReleaseAll(pool, Store(pool, "a", Tokens(2 * kBlock)));
  EXPECT_FALSE(pool.Allocate(Evict::kNo).has_value());
  EXPECT_TRUE(pool.Allocate(Evict::kYes).has_value());
  pool.CheckIntegrity();
}

TEST(BlockPool, EvictsContinuationsBeforeTheirPrefix) {
  BlockPool pool(3);
  const std::vector<int32_t> tokens = Tokens(3 * kBlock);
  ReleaseAll(pool, Store(pool, "a", tokens));
  pool.EvictUntilFree(2);
  EXPECT_EQ(pool.Find("a", tokens).blocks.size(), 1);
}

TEST(BlockPool, AnEqualBlockKeepsItsPlaceAndTheNewOneStaysPrivate) {
  BlockPool pool(4);
  const std::vector<int32_t> first = Store(pool, "a", Tokens(kBlock));
  const std::vector<int32_t> second = Store(pool, "a", Tokens(kBlock));
  ReleaseAll(pool, second);
  EXPECT_EQ(pool.num_cached(), 0);
  EXPECT_EQ(pool.Find("a", Tokens(kBlock)).blocks, first);
}

TEST(BlockPool, StaysConsistentUnderRandomUse) {
  BlockPool pool(16);
  std::mt19937 random(1);
  std::vector<std::vector<int32_t>> held;
  for (int i = 0; i < 3000; ++i) {
    const std::vector<int32_t> tokens = Tokens(static_cast<int32_t>(1 + random() % 3) * kBlock, 100 * (random() % 4));
    if (random() % 2 == 0 && pool.num_free() + pool.num_cached() >= 3) {
      held.push_back(Store(pool, random() % 2 == 0 ? "a" : "b", tokens));
    } else if (random() % 2 == 0) {
      held.push_back(pool.Find("a", tokens).blocks);
    } else if (!held.empty()) {
      ReleaseAll(pool, held.back());
      held.pop_back();
    }
    pool.CheckIntegrity();
  }
  for (const auto& blocks : held) ReleaseAll(pool, blocks);
  EXPECT_EQ(pool.num_free() + pool.num_cached(), 16);
}

}  // namespace
}  // namespace foretoken::model
