// SPDX-License-Identifier: Apache-2.0
// Which part of a model a tensor-parallel rank holds. The cut is Megatron's (1909.08053): q, k, v, gate and up by their
// outputs, o and down by their inputs, embedding and head by the vocabulary; norms are whole everywhere. So a rank has
// whole heads, and its layer is the layer of a narrower model, whose products the ranks sum up twice.
//
//   FT_RETURN_IF_ERROR(CheckTensorParallel(config, num_ranks));
//   const IndexRange ids = ShareOf(config.vocab_size, {.rank = 1, .num_ranks = num_ranks});
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/model/config.h"
#include "kernels/ops.h"

namespace foretoken::model {

struct Shard {
  int32_t rank = 0;
  int32_t num_ranks = 1;
};

// The shard's part of `count` things. Parts are consecutive, by rank, and differ in size by one at most.
kernels::IndexRange ShareOf(int64_t count, const Shard& shard);

// INVALID_ARGUMENT, naming --tensor_parallel, what it does not divide, and the numbers. A vocabulary need not be
// divisible.
absl::Status CheckTensorParallel(const ModelConfig& config, int32_t num_ranks);

// The narrower model whose layers a rank computes. Its vocabulary is that of the whole.
ModelConfig RankConfig(const ModelConfig& config, int32_t num_ranks);

}  // namespace foretoken::model
