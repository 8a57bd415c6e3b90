// SPDX-License-Identifier: Apache-2.0
// Context length and K/V blocks. If this test fails, a server promises contexts that it cannot hold, or refuses
// contexts that it could.
#include "common/model/context_plan.h"

#include <gtest/gtest.h>

namespace foretoken::model {
namespace {

// A block of 16 tokens takes 2 x 2 layers x 4 heads x 64 x 16 x 2 bytes = 32 KiB, so a MiB holds 512 tokens.
ModelConfig Model(int64_t max_positions) {
  ModelConfig model;
  model.num_layers = 2;
  model.num_kv_heads = 4;
  model.head_dim = 64;
  model.max_position_embeddings = max_positions;
  return model;
}

TEST(PlanContext, TakesTheModelsContextWhereTheCacheHoldsIt) {
  const absl::StatusOr<ContextPlan> plan = PlanContext({.kv_cache_mb = 1}, Model(500));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->max_context_tokens, 500);
  EXPECT_EQ(plan->num_blocks, 32);
}

TEST(PlanContext, HoldsNearlyTwiceAsMuchInEightBits) {
  const auto num_blocks = [](kernels::KvCacheDtype dtype) {
    return PlanContext({.kv_cache_mb = 1, .kv_cache_dtype = dtype}, Model(int64_t{1} << 30)).value().num_blocks;
  };
  const int32_t head_dim = Model(1).head_dim, bf16 = num_blocks(kernels::KvCacheDtype::kBf16);
  EXPECT_EQ(bf16, 32);
  EXPECT_EQ(num_blocks(kernels::KvCacheDtype::kInt8), bf16 * 2 * head_dim / (head_dim + 4));
  EXPECT_EQ(num_blocks(kernels::KvCacheDtype::kFp8), bf16 * 2 * head_dim / (head_dim + 4));
}

TEST(PlanContext, EndsTheContextWhereTheCacheEnds) {
  const absl::StatusOr<ContextPlan> plan = PlanContext({.kv_cache_mb = 1}, Model(int64_t{1} << 30));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->max_context_tokens, 512);
}

TEST(PlanContext, RefusesACacheOfAFewTokens) {
  ModelConfig huge = Model(500);
  huge.num_layers = 2000;
  EXPECT_EQ(PlanContext({.kv_cache_mb = 1}, huge).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace foretoken::model
