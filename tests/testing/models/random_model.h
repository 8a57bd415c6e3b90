// SPDX-License-Identifier: Apache-2.0
// A model of random weights, without files. Its matrices repeat a small pool of numbers, so making it is quick.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/model/config.h"
#include "common/model/model_weights.h"
#include "kernels/backend.h"

namespace foretoken::testing {

// The shape of Llama 3.2 1B: 1.24 billion parameters with all 16 layers.
model::ModelConfig OneBillionShape(int64_t num_layers);

// The shape of Llama 3.1 8B: 8.03 billion parameters with all 32 layers.
model::ModelConfig EightBillionShape(int64_t num_layers);

// Everything that `config` asks for: biases, norms of q and k heads, a head of its own. Gains are 1, all other numbers
// normal with deviation `scale`.
model::ModelWeights RandomWeights(const model::ModelConfig& config, kernels::Backend& backend, float scale = 0.02f);

// What a step reads of them: every matrix once.
size_t MatrixBytes(const model::ModelWeights& weights);

// Multiply-adds of one row: through the layers' matrices, and through the head.
double LayerMultiplies(const model::ModelConfig& config);
double HeadMultiplies(const model::ModelConfig& config);

}  // namespace foretoken::testing
