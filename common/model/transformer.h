// SPDX-License-Identifier: Apache-2.0
// The decoder-only transformer of Llama, Mistral, Qwen2 and Qwen3, written once over the backend seam. Token trees,
// prompt chunks and plain decoding are the same code: a ForwardBatch.
//
//   Transformer transformer(config, std::move(weights), backend, {.max_rows = 512, .max_positions = 4096});
//   KvCache kv = MakeKvCache(config, num_blocks, backend);
//   const ConstTensorView logits = transformer.Forward(batch, kv.view);   // [batch.logit_rows, V] f32
//
// Activations: the residual stream is f32, inputs of matrix products are bf16. What a row computes depends on its own
// context only (E1), because every op keeps that. Errors: a batch beyond the options' limits is our own bug and dies.
// Threads: one. Source: transformers' modeling_llama, modeling_mistral, modeling_qwen2, modeling_qwen3.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/config.h"
#include "common/model/forward_batch.h"
#include "common/model/model_weights.h"
#include "common/tensor/tensor.h"
#include "kernels/backend.h"

namespace foretoken::model {

struct KvCache {
  kernels::Buffer buffer;
  kernels::KvCacheView view;
};

KvCache MakeKvCache(const ModelConfig& config, int32_t num_blocks, kernels::Backend& backend);

struct TransformerOptions {
  int32_t max_rows = 512;        // T of one pass
  int32_t max_logit_rows = 512;  // of them, with logits
  int32_t max_positions = 4096;  // positions are below it
};

class Transformer {
 public:
  Transformer(const ModelConfig& config, ModelWeights weights, kernels::Backend& backend,
              const TransformerOptions& options);

  // One pass: stores the rows' K/V in their slots, returns the logits of batch.logit_rows, [n, V] f32. They are valid
  // until the next pass.
  kernels::ConstTensorView Forward(const ForwardBatch& batch, const kernels::KvCacheView& kv);

  const ModelConfig& config() const { return config_; }
  const TransformerOptions& options() const { return options_; }
  kernels::Backend& backend() const { return backend_; }

 private:
  kernels::BatchView Upload(const ForwardBatch& batch);
  void RunLayer(int32_t layer_idx, const kernels::BatchView& batch, const kernels::KvCacheView& kv);
  kernels::ConstTensorView Logits(int32_t num_logit_rows);

  ModelConfig config_;
  ModelWeights weights_;
  kernels::Backend& backend_;
  TransformerOptions options_;
  tensor::Tensor rope_cos_;  // [max positions, D/2] f32
  tensor::Tensor rope_sin_;  // [max positions, D/2] f32

  // Activations of one pass.
  tensor::Tensor hidden_;     // [T, E] f32: the residual stream
  tensor::Tensor normed_;     // [T, E] bf16
  tensor::Tensor qkv_;        // [T, (H + 2 K) D] f32
  tensor::Tensor q_;          // [T, H D] f32
  tensor::Tensor attention_;  // [T, H D] bf16
  tensor::Tensor gate_up_;    // [T, 2 F] f32
  tensor::Tensor ffn_;        // [T, F] bf16
  tensor::Tensor logits_;     // [max_logit_rows, V] f32

  // The batch on the device: its arrays end to end in one allocation, grown when needed.
  std::vector<int32_t> staging_;
  kernels::Buffer batch_buffer_;
  size_t batch_capacity_ = 0;            // integers
  const int32_t* logit_rows_ = nullptr;  // device
};

}  // namespace foretoken::model
