// SPDX-License-Identifier: Apache-2.0
#include "common/model/device_batch.h"

#include "kernels/check.h"

namespace foretoken::model {

ForwardBatch PadBatch(ForwardBatch batch, const BatchPadding& padding) {
  const int32_t num_dummies = padding.num_rows - batch.num_rows();
  FT_CHECK(num_dummies >= 0);
  if (num_dummies > 0) {
    const std::vector<int32_t> chain(num_dummies), blocks(num_dummies / kernels::kKvBlockSize + 1, padding.spare_block);
    AppendSegment({.block_table = blocks, .first_position = 0, .chain = chain}, &batch);
  }
  FT_CHECK(batch.num_segments() <= padding.num_segments);
  batch.segment_begins.resize(padding.num_segments + 1, batch.segment_begins.back());
  batch.block_table_begins.resize(padding.num_segments + 1, batch.block_table_begins.back());
  batch.logit_rows.resize(padding.num_rows, 0);
  return batch;
}

DeviceBatch::DeviceBatch(kernels::Backend& backend, size_t min_capacity) : backend_(backend), capacity_(min_capacity) {
  buffers_.push_back(backend.Allocate(min_capacity * sizeof(int32_t)));
}

DeviceBatch::View DeviceBatch::Upload(const ForwardBatch& batch) {
  staging_.clear();
  const auto append = [this](const std::vector<int32_t>& array) {
    const size_t offset = staging_.size();
    staging_.insert(staging_.end(), array.begin(), array.end());
    return offset;
  };
  const size_t token_ids = append(batch.token_ids), positions = append(batch.positions), slots = append(batch.slots);
  const size_t chain_lens = append(batch.chain_lens), ancestor_begins = append(batch.ancestor_begins);
  const size_t segment_begins = append(batch.segment_begins), table_begins = append(batch.block_table_begins);
  const size_t logit_rows = append(batch.logit_rows);
  // The number of ancestors is not among the counts of a recording, so the tables behind them are numbered from the
  // place where the ancestors begin.
  const size_t ancestors = append(batch.ancestor_slots);
  append(batch.block_tables);
  const auto num_ancestors = static_cast<int32_t>(batch.ancestor_slots.size());
  for (size_t i = 0; i < batch.block_table_begins.size(); ++i) staging_[table_begins + i] += num_ancestors;

  if (staging_.size() > capacity_) {
    capacity_ = 2 * staging_.size();
    buffers_.push_back(backend_.Allocate(capacity_ * sizeof(int32_t)));
  }
  auto* device = static_cast<int32_t*>(buffers_.back().get());
  backend_.Copy(device, staging_.data(), staging_.size() * sizeof(int32_t), kernels::CopyKind::kToDevice);
  return {.batch = {.num_rows = batch.num_rows(),
                    .num_segments = batch.num_segments(),
                    .token_ids = device + token_ids,
                    .positions = device + positions,
                    .slots = device + slots,
                    .chain_lens = device + chain_lens,
                    .ancestor_begins = device + ancestor_begins,
                    .ancestor_slots = device + ancestors,
                    .segment_begins = device + segment_begins,
                    .block_table_begins = device + table_begins,
                    .block_tables = device + ancestors},
          .logit_rows = device + logit_rows,
          .num_logit_rows = static_cast<int32_t>(batch.logit_rows.size())};
}

}  // namespace foretoken::model
