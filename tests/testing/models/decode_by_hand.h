// SPDX-License-Identifier: Apache-2.0
// Runs token sequences through a transformer, batch by batch, and compares the logits.
//
//   LoadedModel model = LoadModel(directory);
//   const std::vector<int32_t> tokens = RandomTokens(150, vocab_size, 1);
//   const std::vector<Row> rows =
//       DecodeChain(model, {.tokens = tokens, .block_table = Iota(0, 16), .chunks = {7, 64}});
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

// Returns a row of the logits of the model's last pass.
Row RowOf(LoadedModel& model, const kernels::ConstTensorView& logits, int64_t row);

struct ChainRun {
  std::span<const int32_t> tokens;
  int32_t first_position = 0;  // of tokens[0]; earlier positions are already in the cache
  std::span<const int32_t> block_table;
  std::vector<int32_t> chunks = {1};  // rows of each pass; the last entry repeats
};

// Returns the logits of every token.
std::vector<Row> DecodeChain(LoadedModel& model, const ChainRun& run);

// Succeeds if the rows are equal bit for bit. A failure names the place and size of the difference. It also fails if
// the expected row has a number that is not finite, because such a comparison proves nothing.
::testing::AssertionResult SameBits(std::span<const float> row, std::span<const float> expected);
::testing::AssertionResult SameBits(std::span<const Row> rows, std::span<const Row> expected);

// Fills K and V with NaN, so that a read of an unwritten slot shows in the results.
void PoisonKv(LoadedModel& model);
void PoisonBlock(LoadedModel& model, int32_t block);

}  // namespace foretoken::testing
