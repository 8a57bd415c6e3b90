// SPDX-License-Identifier: Apache-2.0
// Attention against tests/reference, and row invariance (E1), bit for bit, on every instruction set. If this test
// fails, a CPU server emits wrong tokens, or tokens that depend on other requests.
#include "kernels/cpu/attention/attention.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/testing/cases/attention_cases.h"
#include "tests/testing/cases/for_each_isa.h"

namespace foretoken::kernels::cpu {
namespace {

using testing::AttentionOp;
using testing::ForEachIsa;
using testing::HeadShape;

// Runs on two threads and on one, in turn.
AttentionOp OnThreads() {
  return [num_calls = 0](const AttentionArgs& args) mutable {
    ThreadPool pool(++num_calls % 2 + 1);
    Attention(args, pool);
  };
}

TEST(Attention, MatchesTheReference) {
  ForEachIsa([] {
    for (const HeadShape& shape :
         {HeadShape{1, 1, 2}, HeadShape{4, 2, 16}, HeadShape{3, 3, 10}, HeadShape{7, 1, 8}, HeadShape{4, 1, 64},
          HeadShape{5, 5, 80}, HeadShape{2, 1, 128}, HeadShape{2, 1, 256}, HeadShape{4, 2, 16, KvCacheDtype::kInt8},
          HeadShape{3, 3, 10, KvCacheDtype::kInt8}, HeadShape{4, 1, 64, KvCacheDtype::kInt8},
          HeadShape{7, 1, 8, KvCacheDtype::kFp8}, HeadShape{3, 3, 10, KvCacheDtype::kFp8},
          HeadShape{5, 5, 80, KvCacheDtype::kFp8}, HeadShape{4, 2, 16, KvCacheDtype::kBf16, 0.5f},
          HeadShape{3, 3, 10, KvCacheDtype::kInt8, 2.0f}, HeadShape{4, 2, 16, KvCacheDtype::kBf16, {}, true},
          HeadShape{3, 1, 10, KvCacheDtype::kFp8, {}, true},
          HeadShape{4, 2, 16, KvCacheDtype::kBf16, {}, true, true}}) {
      for (const int32_t num_tokens : {1, 16, 63, 64, 65, 200}) {
        for (const std::optional<int32_t> window : {std::optional<int32_t>(), std::optional(1), std::optional(75)}) {
          testing::ExpectAttentionMatchesTheReference(shape, num_tokens, window, OnThreads());
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

TEST(Attention, GivesARowTheSameBitsInEveryBatch) {
  ForEachIsa([] {
    for (const HeadShape& shape :
         {HeadShape{4, 2, 16}, HeadShape{3, 1, 10}, HeadShape{4, 1, 64}, HeadShape{2, 2, 80},
          HeadShape{3, 1, 10, KvCacheDtype::kInt8}, HeadShape{4, 1, 64, KvCacheDtype::kInt8},
          HeadShape{4, 2, 16, KvCacheDtype::kFp8}, HeadShape{2, 2, 80, KvCacheDtype::kFp8},
          HeadShape{4, 2, 16, KvCacheDtype::kBf16, 0.5f}, HeadShape{4, 2, 16, KvCacheDtype::kBf16, {}, true},
          HeadShape{3, 1, 10, KvCacheDtype::kBf16, {}, false, true}}) {
      for (const int32_t num_tokens : {1, 17, 64, 70, 205}) {
        for (const std::optional<int32_t> window : {std::optional<int32_t>(), std::optional(37), std::optional(100)}) {
          testing::ExpectAttentionIsRowInvariant(shape, num_tokens, window, OnThreads());
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

TEST(Attention, HidesNonFiniteVFromRowsThatDoNotSeeIt) {
  ForEachIsa([] {
    for (const std::optional<int32_t> window : {std::optional<int32_t>(), std::optional(10)}) {
      for (const KvCacheDtype dtype : {KvCacheDtype::kBf16, KvCacheDtype::kInt8, KvCacheDtype::kFp8}) {
        testing::ExpectAttentionHidesNonFiniteV({4, 2, 16, dtype}, window, OnThreads());
      }
    }
  });
}

TEST(Attention, SeesALongPathAsAChain) {
  ForEachIsa([] {
    for (const KvCacheDtype dtype : {KvCacheDtype::kBf16, KvCacheDtype::kInt8, KvCacheDtype::kFp8}) {
      testing::ExpectAttentionSeesALongPathAsAChain({6, 2, 64, dtype}, 300, std::nullopt, OnThreads());
    }
  });
}

}  // namespace
}  // namespace foretoken::kernels::cpu
