// SPDX-License-Identifier: Apache-2.0
// A model of random weights, without files. Its matrices repeat a small pool of numbers, so making it is quick.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/model/config/config.h"
#include "common/model/model_weights.h"
#include "kernels/backend.h"

namespace foretoken::testing {

// The shape of Llama 3.2 1B: 1.24 billion parameters with all 16 layers.
model::ModelConfig OneBillionShape(int64_t num_layers);

// The same, with `num_experts` experts in each layer. Each token takes 8 of them, which are as wide as the dense MLP.
model::ModelConfig OneBillionActiveShape(int64_t num_layers, int64_t num_experts);

// The shape of Llama 3.1 8B: 8.03 billion parameters with all 32 layers.
model::ModelConfig EightBillionShape(int64_t num_layers);

// Makes all weights of `config`, including biases, norms of q and k heads, and an untied head. Gains are 1. All other
// numbers are normal with deviation `scale`.
model::ModelWeights RandomWeights(const model::ModelConfig& config, kernels::Backend& backend, float scale = 0.02f);

// Returns the bytes that a step of one row reads: every matrix once, and of experts the row's.
size_t MatrixBytes(const model::ModelConfig& config, const model::ModelWeights& weights);

// Returns the multiply-adds of one row, through the layers' matrices and through the head.
double LayerMultiplies(const model::ModelConfig& config);
double HeadMultiplies(const model::ModelConfig& config);

}  // namespace foretoken::testing
