// SPDX-License-Identifier: Apache-2.0
// Runs token sequences through a transformer, batch by batch, and looks at the logits.
//
//   LoadedModel model = LoadModel(directory);
//   const std::vector<int32_t> tokens = RandomTokens(150, vocab_size, 1);
//   const std::vector<Row> rows = DecodeChain(model, {.tokens = tokens, .block_table = Iota(0, 16), .chunks = {7,
//   64}});
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/tensor_view.h"
#include "tests/testing/models/loaded_model.h"

namespace foretoken::testing {

using Row = std::vector<float>;  // [V] logits

// first, first + 1, ...
std::vector<int32_t> Iota(int32_t first, int32_t count);

std::vector<int32_t> RandomTokens(int32_t count, int64_t vocab_size, uint32_t seed);

// A row of what the model's last pass returned.
Row RowOf(LoadedModel& model, const kernels::ConstTensorView& logits, int64_t row);

struct ChainRun {
  std::span<const int32_t> tokens;
  int32_t first_position = 0;  // of tokens[0]; what is before it lies in the cache already
  std::span<const int32_t> block_table;
  std::vector<int32_t> chunks = {1};  // rows of each pass; the last one repeats
};

// The logits of every token.
std::vector<Row> DecodeChain(LoadedModel& model, const ChainRun& run);

// Whether the rows are equal bit for bit; if not, where and by how much they differ. A row that is expected to hold
// something else than finite numbers is a failure too: it would prove nothing.
::testing::AssertionResult SameBits(std::span<const float> row, std::span<const float> expected);
::testing::AssertionResult SameBits(std::span<const Row> rows, std::span<const Row> expected);

// Makes all K and V NaN: whatever reads a slot that nothing was stored in, or lets one into a sum, is found out.
void PoisonKv(LoadedModel& model);
void PoisonBlock(LoadedModel& model, int32_t block);

}  // namespace foretoken::testing
