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
  testing::AttentionOp With(int32_t num_blocks) {
    return [this, num_blocks](const AttentionArgs& args) { RunAttention(args, num_blocks); };
  }
  // Rows in company share `num_blocks`; single rows have one block per split.
  testing::AttentionOp WithLoneRowsSplit(int32_t num_blocks) {
    return [this, num_blocks](const AttentionArgs& args) {
      RunAttention(args, args.batch.num_rows == 1 ? kAttentionSplits : num_blocks);
    };
  }
};

constexpr int32_t kBlocksPerPiece[] = {kAttentionSplits, 4, 2, 1};

TEST_F(AttentionTest, MatchesTheReference) {
  for (const HeadShape& shape :
       {HeadShape{1, 1, 2}, HeadShape{4, 2, 16}, HeadShape{3, 3, 10}, HeadShape{7, 1, 64}, HeadShape{2, 1, 80},
        HeadShape{2, 1, 128}, HeadShape{2, 1, 256}, HeadShape{4, 2, 16, KvCacheDtype::kBf16, 0.5f},
        HeadShape{7, 1, 64, KvCacheDtype::kBf16, {}, true, true}}) {
    for (const int32_t num_blocks : kBlocksPerPiece) {
      for (const int32_t num_tokens : {1, 33, 100}) {
        const std::optional<int32_t> window = num_tokens == 100 ? std::optional(60) : std::nullopt;
        testing::ExpectAttentionMatchesTheReference(shape, num_tokens, window, With(num_blocks),
                                                    AttentionOperands::kBf16);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Long enough for the ring to wrap around. The window begins near a tile's end, so that some warps have nothing to do
// there and run ahead. Without a window, warps that have only ancestors run ahead at the last tile.
TEST_F(AttentionTest, MatchesTheReferenceWhereSplitsHaveSeveralTiles) {
  constexpr int32_t kRound = kAttentionTile * kAttentionSplits;
  for (const int32_t num_blocks : kBlocksPerPiece) {
    for (const std::optional<int32_t> window : {std::optional<int32_t>(), std::optional(5 * kRound + 8)}) {
      testing::ExpectAttentionMatchesTheReference({4, 1, 16}, 6 * kRound + 50, window, With(num_blocks),
                                                  AttentionOperands::kBf16);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(AttentionTest, MatchesTheReferenceForAnyNumberOfHeadsPerKvHead) {
  for (const int32_t group : {1, 5, 8, 16, 33, 70}) {
    testing::ExpectAttentionMatchesTheReference({group, 1, 8}, 50, std::nullopt, With(1), AttentionOperands::kBf16);
    if (HasFatalFailure()) return;
  }
}

TEST_F(AttentionTest, RoundsQueriesToBf16) {
  testing::ExpectAttentionRoundsQueriesToBf16({4, 2, 80}, 60, With(kAttentionSplits));
}

// Heads of 10 and of 2 dimensions are copied by elements, the others by chunks.
TEST_F(AttentionTest, ReadsCodesOf8BitsAsTheBf16ThatTheyStandFor) {
  for (const KvCacheDtype dtype : {KvCacheDtype::kInt8, KvCacheDtype::kFp8}) {
    for (const HeadShape& shape :
         {HeadShape{1, 1, 2, dtype}, HeadShape{3, 3, 10, dtype}, HeadShape{4, 2, 16, dtype}, HeadShape{7, 1, 64, dtype},
          HeadShape{2, 1, 80, dtype}, HeadShape{2, 1, 128, dtype}, HeadShape{2, 1, 256, dtype}}) {
      for (const int32_t num_blocks : kBlocksPerPiece) {
        testing::ExpectAttentionReadsCodesAsBf16(shape, 100, num_blocks == 2 ? std::optional(60) : std::nullopt,
                                                 With(num_blocks));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(AttentionTest, ReadsCodesOf8BitsWhereSplitsHaveSeveralTiles) {
  constexpr int32_t kRound = kAttentionTile * kAttentionSplits;
  for (const int32_t num_blocks : kBlocksPerPiece) {
    testing::ExpectAttentionReadsCodesAsBf16({4, 1, 16, KvCacheDtype::kInt8}, 6 * kRound + 50, std::nullopt,
                                             With(num_blocks));
  }
}

TEST_F(AttentionTest, GivesARowTheSameBitsInEveryBatch) {
  for (const int32_t num_blocks : kBlocksPerPiece) {
    for (const int32_t num_tokens : {1, 64, 110}) {
      for (const HeadShape& shape : {HeadShape{3, 1, 10}, HeadShape{3, 1, 10, KvCacheDtype::kBf16, {}, true, true}}) {
        const std::optional<int32_t> window = shape.has_window_origins ? std::optional(50) : std::nullopt;
        testing::ExpectAttentionIsRowInvariant(shape, num_tokens, window, WithLoneRowsSplit(num_blocks));
        if (HasFatalFailure()) return;
      }
      testing::ExpectAttentionIsRowInvariant({3, 1, 10}, num_tokens, 50, WithLoneRowsSplit(num_blocks));
      testing::ExpectAttentionIsRowInvariant({3, 1, 16, KvCacheDtype::kFp8}, num_tokens, 50,
                                             WithLoneRowsSplit(num_blocks));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(AttentionTest, GivesARowTheSameBitsWhereSplitsHaveSeveralTiles) {
  const int32_t num_tokens = kAttentionTile * kAttentionSplits + 40;
  testing::ExpectAttentionIsRowInvariant({.num_heads = 1, .num_kv_heads = 1, .head_dim = 8}, num_tokens, std::nullopt,
                                         WithLoneRowsSplit(1));
}

TEST_F(AttentionTest, SeesALongPathAsAChain) {
  const int32_t num_tokens = 2 * kAttentionTile * kAttentionSplits + 40;
  for (const int32_t num_blocks : kBlocksPerPiece) {
    for (const std::optional<int32_t> window : {std::optional<int32_t>(), std::optional(700)}) {
      testing::ExpectAttentionSeesALongPathAsAChain({6, 2, 64}, num_tokens, window, WithLoneRowsSplit(num_blocks));
    }
  }
}

TEST_F(AttentionTest, HidesNonFiniteVFromRowsThatDoNotSeeIt) {
  for (const HeadShape& shape : {HeadShape{3, 1, 10}, HeadShape{2, 2, 72}, HeadShape{2, 2, 72, KvCacheDtype::kInt8}}) {
    for (const int32_t num_blocks : kBlocksPerPiece) {
      for (const std::optional<int32_t> window : {std::optional<int32_t>(), std::optional(10)}) {
        testing::ExpectAttentionHidesNonFiniteV(shape, window, WithLoneRowsSplit(num_blocks));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(ChooseBlocksPerPiece, SharesSplitsWhileThereAreFewQueries) {
  const auto choose = [](int64_t num_rows, int64_t num_segments) {
    return ChooseBlocksPerPiece(
        {.num_rows = num_rows, .num_segments = num_segments, .num_heads = 32, .num_kv_heads = 8});
  };
  EXPECT_EQ(choose(1, 1), 16);
  EXPECT_EQ(choose(8, 1), 16);
  EXPECT_EQ(choose(48, 1), 8);
  EXPECT_EQ(choose(64, 2), 8);
  EXPECT_EQ(choose(128, 8), 4);
  EXPECT_EQ(choose(16, 16), 2);
  EXPECT_EQ(choose(511, 8), 2);
  EXPECT_EQ(choose(8192, 1), 1);
}

}  // namespace
}  // namespace foretoken::kernels::cuda
