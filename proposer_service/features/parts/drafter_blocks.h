// SPDX-License-Identifier: Apache-2.0
// A drafter's decoder blocks over a backend, with their K/V cache: attention and the gated MLP, on one rank. The caller
// chooses the inputs of attention and the residual stream, because drafters differ there.
//
//   blocks.Attend(batch, 0, input, residual);       // residual += Wo Attention(Wqkv input)
//   blocks.Feed(0, residual);                       // residual += MLP(norm(residual))
//
// A row's result depends on its own context only (E1), because every op guarantees that.
// Threads: one.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/config/config.h"
#include "common/model/model_weights.h"
#include "common/tensor/tensor.h"
#include "kernels/backend.h"

namespace foretoken::proposer {

struct BlockLimits {
  int32_t max_rows = 0;  // T
  int32_t max_positions = 0;
  int32_t num_blocks = 0;  // of the cache
};

// What the rows of a batch see, where it does not follow from their positions. Lists [T] in the backend's memory, or
// null.
struct Sight {
  const int32_t* last_seen = nullptr;       // the last logical position that a row sees; null: its own
  const int32_t* window_origins = nullptr;  // where a row's window is counted from; null: the last one that it sees
};

class DrafterBlocks {
 public:
  DrafterBlocks(const model::ModelConfig& config, std::vector<model::LayerWeights> layers, kernels::Backend& backend,
                const BlockLimits& limits);

  int32_t num_layers() const { return static_cast<int32_t>(layers_.size()); }
  const model::LayerWeights& layer(int32_t layer_idx) const { return layers_[layer_idx]; }
  const kernels::KvCacheView& kv() const { return kv_; }

  // `input` [T, K] bf16; `residual` [T, E] f32.
  void Attend(const kernels::BatchView& batch, int32_t layer_idx, const kernels::TensorView& input,
              const kernels::TensorView& residual, const Sight& sight = {});
  void Feed(int32_t layer_idx, const kernels::TensorView& residual);
  // A block as in an ordinary decoder: its input is the normed residual stream.
  void Run(const kernels::BatchView& batch, int32_t layer_idx, const kernels::TensorView& residual,
           const Sight& sight = {});
  // Stores the K/V of rows that see nothing themselves. `input` [T, K] bf16.
  void StoreKv(const kernels::BatchView& batch, int32_t layer_idx, const kernels::TensorView& input);

 private:
  const model::ModelConfig config_;
  std::vector<model::LayerWeights> layers_;  // [L]
  kernels::Backend& backend_;
  tensor::Tensor rope_cos_;  // [max positions, D/2] f32
  tensor::Tensor rope_sin_;  // [max positions, D/2] f32
  kernels::Buffer kv_buffer_;
  kernels::KvCacheView kv_;

  // The activations of one pass.
  tensor::Tensor normed_;     // [T, E] bf16
  tensor::Tensor qkv_;        // [T, (H + 2 K) D] f32
  tensor::Tensor q_;          // [T, H D] f32
  tensor::Tensor attention_;  // [T, H D] bf16
  tensor::Tensor gate_up_;    // [T, 2 F] f32
  tensor::Tensor ffn_;        // [T, F] bf16
};

}  // namespace foretoken::proposer
