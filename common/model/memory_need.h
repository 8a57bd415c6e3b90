// SPDX-License-Identifier: Apache-2.0
// What a model takes of a rank's device, told before any of it is taken.
#pragma once

#include <cstdint>

#include "common/model/config.h"
#include "common/model/transformer_rank.h"
#include "kernels/backend.h"

namespace foretoken::model {

// No rank takes more: with matrices as bf16, or those of layers as fp8 with a scale per output, K/V for so many blocks,
// and the tensors of a TransformerRank and of its products.
kernels::MemoryNeed LargestRankNeed(const ModelConfig& config, int32_t num_ranks, const TransformerOptions& options,
                                    int32_t num_blocks,
                                    kernels::WeightQuantization quantization = kernels::WeightQuantization::kNone);

}  // namespace foretoken::model
