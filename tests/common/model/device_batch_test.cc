// SPDX-License-Identifier: Apache-2.0
// The batch on a device. If this test fails, a recorded pass reads another batch's rows, so requests get wrong tokens,
// or ranks wait for each other for ever.
#include "common/model/device_batch.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kernels/make_backend.h"
#include "tests/testing/fakes/forwarding_backend.h"

namespace foretoken::model {
namespace {

using Ints = std::vector<int32_t>;

// Two sequences: a chain of two with a tree of two below it, and a single root.
ForwardBatch SmallBatch() {
  ForwardBatch batch;
  const Ints first_blocks = {4, 2}, second_blocks = {7}, chain = {11, 12}, root = {13};
  const Ints tree = {21, 22}, parents = {-1, 0}, slots = {80, 81};
  AppendSegment({.block_table = first_blocks,
                 .first_position = 16,
                 .chain = chain,
                 .tree_token_ids = tree,
                 .tree_parents = parents,
                 .tree_slots = slots},
                &batch);
  AppendSegment({.block_table = second_blocks, .first_position = 3, .chain = root}, &batch);
  batch.logit_rows = {1, 2, 3, 4};
  return batch;
}

TEST(PadBatch, LeavesRowsSegmentsAndLogitsAsTheyAre) {
  const ForwardBatch batch = SmallBatch(),
                     padded = PadBatch(batch, {.num_rows = 8, .num_segments = 4, .spare_block = 9});
  const auto begins = [](const Ints& all, const Ints& part) {
    return Ints(all.begin(), all.begin() + static_cast<ptrdiff_t>(part.size())) == part;
  };
  EXPECT_TRUE(begins(padded.token_ids, batch.token_ids));
  EXPECT_TRUE(begins(padded.positions, batch.positions));
  EXPECT_TRUE(begins(padded.slots, batch.slots));
  EXPECT_TRUE(begins(padded.chain_lens, batch.chain_lens));
  EXPECT_TRUE(begins(padded.ancestor_begins, batch.ancestor_begins));
  EXPECT_TRUE(begins(padded.segment_begins, batch.segment_begins));
  EXPECT_TRUE(begins(padded.block_table_begins, batch.block_table_begins));
  EXPECT_TRUE(begins(padded.block_tables, batch.block_tables));
  EXPECT_TRUE(begins(padded.logit_rows, batch.logit_rows));
  EXPECT_EQ(padded.ancestor_slots, batch.ancestor_slots);
}

TEST(PadBatch, AddsOneSequenceThatReadsAndStoresInTheSpareBlockOnly) {
  for (const int32_t num_rows : {8, 40}) {  // within a block, and beyond
    const ForwardBatch padded = PadBatch(SmallBatch(), {.num_rows = num_rows, .num_segments = 3, .spare_block = 9});
    ASSERT_EQ(padded.num_rows(), num_rows);
    EXPECT_EQ(padded.segment_begins, (Ints{0, 4, 5, num_rows}));
    for (int32_t row = 5; row < num_rows; ++row) {
      EXPECT_EQ(padded.slots[row] / kernels::kKvBlockSize, 9);
      EXPECT_EQ(padded.positions[row], row - 5);
      EXPECT_EQ(padded.chain_lens[row], padded.positions[row] + 1);
      EXPECT_EQ(padded.block_tables[padded.block_table_begins[2] + padded.positions[row] / kernels::kKvBlockSize], 9);
    }
  }
}

TEST(PadBatch, RaisesAllCountsToThePadding) {
  for (const int32_t num_rows : {5, 8}) {
    const ForwardBatch padded = PadBatch(SmallBatch(), {.num_rows = num_rows, .num_segments = 4, .spare_block = 9});
    EXPECT_EQ(padded.num_rows(), num_rows);
    EXPECT_EQ(padded.num_segments(), 4);
    EXPECT_EQ(padded.logit_rows.size(), num_rows);
    EXPECT_EQ(padded.segment_begins.back(), num_rows);
    EXPECT_EQ(padded.block_table_begins.size(), 5);
    EXPECT_EQ(padded.block_table_begins.back(), padded.block_tables.size());
  }
}

// A recorded pass must get the same addresses and counts again.
TEST(DeviceBatch, PutsBatchesOfEqualCountsInTheSamePlaces) {
  const kernels::MadeBackend made = kernels::MakeBackend({.num_threads = 1});
  DeviceBatch device_batch(*made.backend, 1000);
  const BatchPadding padding = {.num_rows = 8, .num_segments = 4, .spare_block = 9};
  const DeviceBatch::View first = device_batch.Upload(PadBatch(SmallBatch(), padding));
  ForwardBatch other;  // without a tree, on a longer table
  const Ints blocks = {1, 2, 3, 4, 5, 6}, root = {5};
  AppendSegment({.block_table = blocks, .first_position = 90, .chain = root}, &other);
  other.logit_rows = {0};
  EXPECT_EQ(device_batch.Upload(PadBatch(other, padding)), first);
  EXPECT_NE(device_batch.Upload(other), first);
}

class FreeCountingBackend final : public testing::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  kernels::Buffer Allocate(size_t num_bytes) override {
    kernels::Buffer buffer = backend().Allocate(num_bytes);
    auto free = buffer.get_deleter();
    return kernels::Buffer(buffer.release(), [this, free = std::move(free)](void* memory) {
      free(memory);
      ++num_freed;
    });
  }

  int num_freed = 0;
};

// Ranks that wait for each other must not wait for a device either.
TEST(DeviceBatch, FreesNoMemoryDuringUse) {
  FreeCountingBackend backend(kernels::MakeBackend({.num_threads = 1}).backend);
  {
    DeviceBatch device_batch(backend, 0);
    for (const int32_t num_rows : {5, 50, 500}) {
      device_batch.Upload(PadBatch(SmallBatch(), {.num_rows = num_rows, .num_segments = 4, .spare_block = 9}));
    }
    EXPECT_EQ(backend.num_freed, 0);
  }
  EXPECT_GT(backend.num_freed, 1);
}

TEST(DeviceBatch, HasEveryArrayAtTheAddressInItsView) {
  const kernels::MadeBackend made = kernels::MakeBackend({.num_threads = 1});
  DeviceBatch device_batch(*made.backend, 0);
  const ForwardBatch batch = SmallBatch();
  const DeviceBatch::View view = device_batch.Upload(batch);
  const auto array = [](const int32_t* begin, size_t size) { return Ints(begin, begin + size); };
  EXPECT_EQ(array(view.batch.token_ids, 5), batch.token_ids);
  EXPECT_EQ(array(view.batch.positions, 5), batch.positions);
  EXPECT_EQ(array(view.batch.slots, 5), batch.slots);
  EXPECT_EQ(array(view.batch.chain_lens, 5), batch.chain_lens);
  EXPECT_EQ(array(view.batch.ancestor_begins, 6), batch.ancestor_begins);
  EXPECT_EQ(array(view.batch.ancestor_slots, 3), batch.ancestor_slots);
  EXPECT_EQ(array(view.batch.segment_begins, 3), batch.segment_begins);
  EXPECT_EQ(array(view.batch.block_tables + view.batch.block_table_begins[0], 3), batch.block_tables);
  EXPECT_EQ(view.batch.block_table_begins[2] - view.batch.block_table_begins[0], 3);
  EXPECT_EQ(array(view.logit_rows, 4), batch.logit_rows);
}

}  // namespace
}  // namespace foretoken::model
