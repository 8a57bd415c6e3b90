// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/models/decode_by_hand.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

namespace foretoken::testing {

std::vector<int32_t> Iota(int32_t first, int32_t count) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::vector<int32_t> RandomTokens(int32_t count, int64_t vocab_size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_size));
  return tokens;
}

Row RowOf(LoadedModel& model, const kernels::ConstTensorView& logits, int64_t row) {
  Row values(logits.shape[1]);
  model.backend().Copy(values.data(), logits.as<float>() + row * logits.shape[1], values.size() * sizeof(float),
                       kernels::CopyKind::kToHost);
  model.backend().Synchronize();
  return values;
}

std::vector<Row> DecodeChain(LoadedModel& model, const ChainRun& run) {
  std::vector<Row> rows;
  for (size_t i = 0; rows.size() < run.tokens.size(); ++i) {
    const size_t chunk = run.chunks[std::min(i, run.chunks.size() - 1)];
    const size_t size = std::min(chunk, run.tokens.size() - rows.size());
    model::ForwardBatch batch;
    AppendSegment({.block_table = run.block_table,
                   .first_position = run.first_position + static_cast<int32_t>(rows.size()),
                   .chain = run.tokens.subspan(rows.size(), size)},
                  &batch);
    batch.logit_rows = Iota(0, static_cast<int32_t>(size));
    const kernels::ConstTensorView logits = model.transformer->Forward(batch, model.kv);
    for (size_t row = 0; row < size; ++row) rows.push_back(RowOf(model, logits, static_cast<int64_t>(row)));
  }
  return rows;
}

::testing::AssertionResult SameBits(std::span<const float> row, std::span<const float> expected) {
  if (row.size() != expected.size()) {
    return ::testing::AssertionFailure() << row.size() << " logits where " << expected.size() << " are expected";
  }
  const auto differs = [](float a, float b) { return std::bit_cast<uint32_t>(a) != std::bit_cast<uint32_t>(b); };
  size_t num_different = 0, first = 0;
  for (size_t v = row.size(); v-- > 0;) {
    if (!std::isfinite(expected[v])) return ::testing::AssertionFailure() << "logit " << v << " is expected not finite";
    if (!differs(row[v], expected[v])) continue;
    ++num_different;
    first = v;
  }
  if (num_different == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << num_different << " of " << row.size() << " logits differ, the first is "
                                       << first << ": " << std::hexfloat << row[first] << " where " << expected[first]
                                       << " is expected";
}

::testing::AssertionResult SameBits(std::span<const Row> rows, std::span<const Row> expected) {
  if (rows.size() != expected.size()) {
    return ::testing::AssertionFailure() << rows.size() << " rows where " << expected.size() << " are expected";
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (auto same = SameBits(std::span(rows[i]), std::span(expected[i])); !same) return same << ", row " << i;
  }
  return ::testing::AssertionSuccess();
}

void PoisonKv(LoadedModel& model) {
  for (int32_t block = 0; block < model.kv.num_blocks; ++block) PoisonBlock(model, block);
}

void PoisonBlock(LoadedModel& model, int32_t block) {
  for (int rank = 0; rank < model.ranks->num_ranks(); ++rank) {
    const kernels::KvCacheView& kv = model.kv.ranks[rank].view;
    const size_t num_elements = kv.bytes_per_block_layer() / sizeof(uint16_t);
    const std::vector<uint16_t> poison(num_elements, kernels::Bf16FromFloat(std::nanf("")));
    for (int32_t layer = 0; layer < kv.num_layers; ++layer) {
      for (const int32_t part : {0, 1}) {
        model.ranks->backend(rank).Copy(kv.block_head(layer, part, block, 0), poison.data(),
                                        num_elements * sizeof(uint16_t), kernels::CopyKind::kToDevice);
      }
    }
  }
}

}  // namespace foretoken::testing
