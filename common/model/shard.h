// SPDX-License-Identifier: Apache-2.0
// The part of a model that a tensor-parallel rank holds. The cut is Megatron's (1909.08053): q, k, v, gate and up by
// their outputs (of every expert, too), o and down by their inputs, embedding and head by the vocabulary. So a rank has
// whole heads. Norms are whole on every rank, but for norms of all of q and of k, whose gains are cut with the heads.
// A rank's layer is the layer of a narrower model. The ranks sum up two of its products, and the mean squares of such
// norms.
//
//   FT_RETURN_IF_ERROR(CheckTensorParallel(config, num_ranks));
//   const IndexRange ids = ShareOf(config.vocab_size, {.rank = 1, .num_ranks = num_ranks});
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/model/config/config.h"
#include "kernels/ops.h"

namespace foretoken::model {

struct Shard {
  int32_t rank = 0;
  int32_t num_ranks = 1;
};

// The shard's range of `count` items. Ranges are consecutive, by rank, and their sizes differ by at most one.
kernels::IndexRange ShareOf(int64_t count, const Shard& shard);

// INVALID_ARGUMENT names --tensor_parallel, the size that it does not divide, and the numbers. num_ranks need not
// divide the vocabulary.
absl::Status CheckTensorParallel(const ModelConfig& config, int32_t num_ranks);

// The narrower model whose layers a rank computes. Its vocabulary is the whole model's.
ModelConfig RankConfig(const ModelConfig& config, int32_t num_ranks);

}  // namespace foretoken::model
