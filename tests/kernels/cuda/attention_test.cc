// SPDX-License-Identifier: Apache-2.0
// The cases of the CPU's test on the CUDA backend, row-invariant bit for bit. If this test fails, a GPU server emits
// wrong tokens, or tokens that depend on other requests.
#include "kernels/cuda/attention/attention.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/kernels/cuda/on_device.h"
#include "tests/testing/cases/attention_cases.h"

namespace foretoken::kernels::cuda {
namespace {

using testing::AttentionOperands;
using testing::HeadShape;

class AttentionTest : public OnDevice {
 protected:
  testing::AttentionOp With(SplitWork work) {
    return [this, work](const AttentionArgs& args) { RunAttention(args, work); };
  }
  // Rows in company use `work`; single rows use one block per split.
  testing::AttentionOp WithLoneRowsSplit(SplitWork work) {
    return [this, work](const AttentionArgs& args) {
      RunAttention(args, args.batch.num_rows == 1 ? SplitWork::kBlockPerSplit : work);
    };
  }
};

constexpr SplitWork kSplitWorks[] = {SplitWork::kBlockPerSplit, SplitWork::kOneBlock};

TEST_F(AttentionTest, MatchesTheReference) {
  for (const HeadShape& shape :
       {HeadShape{1, 1, 2}, HeadShape{4, 2, 16}, HeadShape{3, 3, 10}, HeadShape{7, 1, 64}, HeadShape{2, 1, 80},
        HeadShape{2, 1, 128}, HeadShape{2, 1, 256}, HeadShape{4, 2, 16, KvCacheDtype::kBf16, 0.5f}}) {
    for (const SplitWork work : kSplitWorks) {
      for (const int32_t num_tokens : {1, 33, 100}) {
        const std::optional<int32_t> window = num_tokens == 100 ? std::optional(60) : std::nullopt;
        testing::ExpectAttentionMatchesTheReference(shape, num_tokens, window, With(work), AttentionOperands::kBf16);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Long enough for the ring to wrap around. The window begins near a tile's end, so that some warps have nothing to do
// there and run ahead. Without a window, warps that have only ancestors run ahead at the last tile.
TEST_F(AttentionTest, MatchesTheReferenceWhereSplitsHaveSeveralTiles) {
  constexpr int32_t kRound = kAttentionTile * kAttentionSplits;
  for (const SplitWork work : kSplitWorks) {
    for (const std::optional<int32_t> window : {std::optional<int32_t>(), std::optional(5 * kRound + 8)}) {
      testing::ExpectAttentionMatchesTheReference({4, 1, 16}, 6 * kRound + 50, window, With(work),
                                                  AttentionOperands::kBf16);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(AttentionTest, MatchesTheReferenceForAnyNumberOfHeadsPerKvHead) {
  for (const int32_t group : {1, 5, 8, 16, 33, 70}) {
    testing::ExpectAttentionMatchesTheReference({group, 1, 8}, 50, std::nullopt, With(SplitWork::kOneBlock),
                                                AttentionOperands::kBf16);
    if (HasFatalFailure()) return;
  }
}

TEST_F(AttentionTest, RoundsQueriesToBf16) {
  testing::ExpectAttentionRoundsQueriesToBf16({4, 2, 80}, 60, With(SplitWork::kBlockPerSplit));
}

TEST_F(AttentionTest, GivesARowTheSameBitsInEveryBatch) {
  for (const SplitWork work : kSplitWorks) {
    for (const int32_t num_tokens : {1, 64, 110}) {
      for (const std::optional<int32_t> window : {std::optional<int32_t>(), std::optional(50)}) {
        testing::ExpectAttentionIsRowInvariant({.num_heads = 3, .num_kv_heads = 1, .head_dim = 10}, num_tokens, window,
                                               WithLoneRowsSplit(work));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(AttentionTest, GivesARowTheSameBitsWhereSplitsHaveSeveralTiles) {
  const int32_t num_tokens = kAttentionTile * kAttentionSplits + 40;
  testing::ExpectAttentionIsRowInvariant({.num_heads = 1, .num_kv_heads = 1, .head_dim = 8}, num_tokens, std::nullopt,
                                         WithLoneRowsSplit(SplitWork::kOneBlock));
}

TEST_F(AttentionTest, SeesALongPathAsAChain) {
  const int32_t num_tokens = 2 * kAttentionTile * kAttentionSplits + 40;
  for (const SplitWork work : kSplitWorks) {
    for (const std::optional<int32_t> window : {std::optional<int32_t>(), std::optional(700)}) {
      testing::ExpectAttentionSeesALongPathAsAChain({6, 2, 64}, num_tokens, window, WithLoneRowsSplit(work));
    }
  }
}

TEST_F(AttentionTest, HidesNonFiniteVFromRowsThatDoNotSeeIt) {
  for (const HeadShape& shape : {HeadShape{3, 1, 10}, HeadShape{2, 2, 72}}) {
    for (const SplitWork work : kSplitWorks) {
      for (const std::optional<int32_t> window : {std::optional<int32_t>(), std::optional(10)}) {
        testing::ExpectAttentionHidesNonFiniteV(shape, window, WithLoneRowsSplit(work));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(ChooseSplitWork, SplitsWhileThereAreFewQueries) {
  EXPECT_EQ(ChooseSplitWork(1, 32), SplitWork::kBlockPerSplit);
  EXPECT_EQ(ChooseSplitWork(128, 32), SplitWork::kBlockPerSplit);
  EXPECT_EQ(ChooseSplitWork(8192, 32), SplitWork::kOneBlock);
}

}  // namespace
}  // namespace foretoken::kernels::cuda
