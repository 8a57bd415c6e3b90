// SPDX-License-Identifier: Apache-2.0
// A model's weights in a backend's own layout, read once from a checkpoint.
//
// q, k and v are one matrix, and gate and up another; norms and biases are f32. A tied head is the embedding itself;
// Embed reads it in its packed form. Pages of the mapped files are released as they are copied, so the peak is the
// weights and a little more. If several ranks share a model, each reads its part and nothing else (shard.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/config/config.h"
#include "common/model/expert_store.h"
#include "common/model/shard.h"
#include "common/model/weight_reader.h"
#include "common/quantization/find_weight.h"
#include "common/tensor/tensor.h"
#include "common/weights/checkpoint.h"
#include "kernels/backend.h"

namespace foretoken::model {

// For a rank, H, K, F and V are its share of them. Only rank 0 has o_bias and every down_bias, so that a sum over ranks
// adds them once. The gains of norms include the configuration's norm_offset.
struct LayerWeights {
  tensor::Tensor input_norm;                 // [E] f32, or empty
  std::unique_ptr<kernels::Weight> qkv;      // [(H + 2 K) D, E]
  tensor::Tensor qkv_bias;                   // [(H + 2 K) D] f32, or empty
  tensor::Tensor q_norm;                     // [D] f32, or [H D] of the whole q, or empty
  tensor::Tensor k_norm;                     // [D] f32, or [K D] of the whole k, or empty
  std::unique_ptr<kernels::Weight> o;        // [E, H D]
  tensor::Tensor o_bias;                     // [E] f32, or empty
  tensor::Tensor sinks;                      // [H] f32, or empty
  tensor::Tensor attention_post_norm;        // [E] f32, or empty
  tensor::Tensor mlp_norm;                   // [E] f32, or empty
  std::unique_ptr<kernels::Weight> gate_up;  // [2 F, E]
  tensor::Tensor gate_up_bias;               // [2 F] f32, or empty
  std::unique_ptr<kernels::Weight> down;     // [E, F]
  tensor::Tensor down_bias;                  // [E] f32, or empty
  // A layer with experts has a router and these, and experts in the model's store. gate_up and down are what all
  // tokens share, or null.
  std::unique_ptr<kernels::Weight> router;  // [N, E]
  tensor::Tensor router_bias;               // [N] f32, or empty
  tensor::Tensor choice_bias;               // [N] f32, or empty
  tensor::Tensor mlp_post_norm;             // [E] f32, or empty
};

struct ModelWeights {
  std::unique_ptr<kernels::Weight> embed;  // [V, E]
  std::vector<LayerWeights> layers;        // [L]
  std::unique_ptr<ExpertStore> experts;    // null if no layer has any
  tensor::Tensor final_norm;               // [E] f32
  std::unique_ptr<kernels::Weight> head;   // [V, E], or null if it is tied to embed

  const kernels::Weight& head_or_embed() const { return head != nullptr ? *head : *embed; }
};

// Checks all names and shapes, before a long copy begins. Errors: as quantization::FindWeight.
absl::Status CheckWeights(const ModelConfig& config, const quantization::OpenedWeights& opened);

// The config is the whole model's. Errors: as CheckWeights.
absl::StatusOr<ModelWeights> LoadWeights(const ModelConfig& config, const quantization::OpenedWeights& opened,
                                         kernels::Backend& backend, WeightReader& reader, const Shard& shard = {});
// The same without the experts: it checks them, but their store is null.
absl::StatusOr<ModelWeights> LoadWithoutExperts(const ModelConfig& config, const quantization::OpenedWeights& opened,
                                                kernels::Backend& backend, WeightReader& reader, const Shard& shard);

// Packs single experts of a rank, whose tensors were checked by one of the functions above. The function shares the
// checkpoint, because it reads files as long as the model serves. The backend outlives it.
ExpertStore::Pack ExpertPacker(const ModelConfig& config, std::shared_ptr<const weights::Checkpoint> checkpoint,
                               kernels::Backend& backend, const Shard& shard);

// The number of the model's parameters; a tied head counts once.
uint64_t CountParameters(const ModelConfig& config);

}  // namespace foretoken::model
