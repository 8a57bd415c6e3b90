// SPDX-License-Identifier: Apache-2.0
// Computes the device memory that a model's ranks need, before any of it is allocated.
#pragma once

#include <cstdint>

#include "common/model/config.h"
#include "common/model/transformer_rank.h"
#include "kernels/backend.h"

namespace foretoken::model {

// The need of the rank that needs most: its matrices (bf16; with fp8 a scale per output besides, with integers one per
// group), the K/V of `num_blocks` blocks, and the tensors of a TransformerRank and of its products.
kernels::MemoryNeed LargestRankNeed(const ModelConfig& config, int32_t num_ranks, const TransformerOptions& options,
                                    int32_t num_blocks, const kernels::Quantization& layers = {},
                                    const kernels::Quantization& head = {},
                                    kernels::KvCacheDtype kv_dtype = kernels::KvCacheDtype::kBf16);

}  // namespace foretoken::model
