// SPDX-License-Identifier: Apache-2.0
// Controls of row invariance: computations that are correct but not invariant must fail the checks of
// row_invariance_test.cc on the same inputs. They differ in single bits of f32 sums, and rounding to bf16 hides most of
// these differences. If this test fails, the suite would miss a kernel whose results depend on the batch.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testing/fakes/variant_backend.h"
#include "tests/testing/models/exact_models.h"
#include "tests/testing/models/row_invariance.h"

namespace foretoken::testing {
namespace {

class RowInvarianceControl : public ::testing::Test {
 protected:
  static constexpr int32_t kNumTokens = 150;

  // The model with a full layer and three windows.
  static LoadedModel Load(Variant variant) {
    return LoadExactModel(RandomExactModels(/*vocab_size=*/331).front(),
                          {.num_threads = 1, .num_blocks = kExactBlocks, .wrap_backend = WithVariant(variant)});
  }
  static KnownSequence Chain(LoadedModel& model) { return DecodePlainly(model, {.num_tokens = kNumTokens}); }
};

const std::vector<int32_t> kBatchSizes = {1, 2, 4, 8, 64};
const std::vector<int32_t> kChunkSizes = {3, 16, 65};
const std::vector<int32_t> kTokensAboveTrees = {40, 64, 101};
constexpr int32_t kNumNodes = 40;

TEST_F(RowInvarianceControl, AnInvariantOrderPassesEveryCheck) {
  LoadedModel model = Load(Variant::kInvariant);
  const KnownSequence chain = Chain(model);
  EXPECT_TRUE(CheckBatchSizes(model, kBatchSizes));
  EXPECT_TRUE(CheckChunkSizes(model, chain, kChunkSizes));
  EXPECT_TRUE(CheckBlockLayouts(model, chain, 2));
  EXPECT_TRUE(CheckRandomTrees(model, kTokensAboveTrees, kNumNodes));
  EXPECT_TRUE(CheckMovedRows(model, chain, TreeSlots::kApart));
  EXPECT_TRUE(CheckMovedRows(model, chain, TreeSlots::kOverlapping));
  EXPECT_TRUE(CheckReusedBlocks(model, std::span(&chain, 1), 5));
  EXPECT_TRUE(CheckMixedBatches(model, std::span(&chain, 1), 5));
}

TEST_F(RowInvarianceControl, AMatMulThatSplitsItsInputsForBatchesIsDetected) {
  LoadedModel model = Load(Variant::kMatMulSplitsInputs);
  const KnownSequence chain = Chain(model);
  EXPECT_FALSE(CheckBatchSizes(model, kBatchSizes));
  EXPECT_FALSE(CheckChunkSizes(model, chain, kChunkSizes));
  EXPECT_FALSE(CheckBlockLayouts(model, chain, 2));
  EXPECT_FALSE(CheckRandomTrees(model, kTokensAboveTrees, kNumNodes));
  EXPECT_FALSE(CheckMovedRows(model, chain, TreeSlots::kApart));
  EXPECT_FALSE(CheckReusedBlocks(model, std::span(&chain, 1), 5));
  EXPECT_FALSE(CheckMixedBatches(model, std::span(&chain, 1), 5));
}

TEST_F(RowInvarianceControl, AttentionThatKeepsTreesApartIsDetected) {
  LoadedModel model = Load(Variant::kAttentionTreeApart);
  const KnownSequence chain = Chain(model);
  EXPECT_TRUE(CheckChunkSizes(model, chain, kChunkSizes));  // a chain passes, because it has no tree
  EXPECT_FALSE(CheckRandomTrees(model, kTokensAboveTrees, kNumNodes));
  EXPECT_FALSE(CheckMovedRows(model, chain, TreeSlots::kApart));
}

TEST_F(RowInvarianceControl, AttentionThatKeepsNewRowsApartIsDetected) {
  LoadedModel model = Load(Variant::kAttentionNewRowsApart);
  const KnownSequence chain = Chain(model);
  EXPECT_TRUE(CheckBatchSizes(model, kBatchSizes));  // passes, because each sequence has one new row
  EXPECT_FALSE(CheckChunkSizes(model, chain, kChunkSizes));
  EXPECT_FALSE(CheckBlockLayouts(model, chain, 2));
  EXPECT_FALSE(CheckReusedBlocks(model, std::span(&chain, 1), 5));
}

TEST_F(RowInvarianceControl, AttentionThatSplitsTheContextOfSmallBatchesIsDetected) {
  LoadedModel model = Load(Variant::kAttentionSplitsSmallBatches);
  EXPECT_FALSE(CheckBatchSizes(model, kBatchSizes));
  EXPECT_FALSE(CheckChunkSizes(model, Chain(model), kChunkSizes));
  EXPECT_FALSE(CheckRandomTrees(model, kTokensAboveTrees, kNumNodes));
}

TEST_F(RowInvarianceControl, AttentionThatFollowsBlocksInMemoryIsDetected) {
  LoadedModel model = Load(Variant::kAttentionFollowsBlocks);
  const KnownSequence chain = Chain(model);
  EXPECT_TRUE(CheckChunkSizes(model, chain, kChunkSizes));  // passes, because its block table counts up
  EXPECT_FALSE(CheckBlockLayouts(model, chain, 2));
}

TEST_F(RowInvarianceControl, MovesThatOverwriteUnmovedRowsAreDetected) {
  LoadedModel model = Load(Variant::kMoveKvOneByOne);
  const KnownSequence chain = Chain(model);
  EXPECT_TRUE(CheckMovedRows(model, chain, TreeSlots::kApart));
  EXPECT_FALSE(CheckMovedRows(model, chain, TreeSlots::kOverlapping));
}

TEST_F(RowInvarianceControl, OneBitOfOneLogitIsDetected) {
  const Row row = {1, -2, 0.5f}, nan_row = {1, NAN, 0.5f};
  EXPECT_TRUE(SameBits(row, row));
  EXPECT_FALSE(SameBits(Row{1, -2, std::nextafter(0.5f, 1.0f)}, row));
  EXPECT_FALSE(SameBits(Row{1, -2}, row));
  EXPECT_FALSE(SameBits(Row{-0.0f}, Row{0.0f}));
  EXPECT_FALSE(SameBits(nan_row, nan_row));
}

}  // namespace
}  // namespace foretoken::testing
