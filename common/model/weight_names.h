// SPDX-License-Identifier: Apache-2.0
// The tensors that a checkpoint of a configuration holds: Hugging Face's name and the shape for every role.
//
//   const ModelWeightNames names = NameWeights(config);
//   FT_ASSIGN_OR_RETURN(const ConstTensorView q, checkpoint.Find(names.layers[0].q.name, names.layers[0].q.shape));
//
// Matrices are [outputs, inputs], row-major. Shape letters are those of common/tensor/shape.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "kernels/tensor_view.h"

namespace foretoken::model {

struct WeightName {
  std::string name;
  kernels::Shape shape;
};

struct LayerWeightNames {
  WeightName input_norm;             // [E]
  WeightName q;                      // [H D, E]
  WeightName k;                      // [K D, E]
  WeightName v;                      // [K D, E]
  WeightName o;                      // [E, H D]
  std::optional<WeightName> q_bias;  // [H D]
  std::optional<WeightName> k_bias;  // [K D]
  std::optional<WeightName> v_bias;  // [K D]
  std::optional<WeightName> o_bias;  // [E]
  std::optional<WeightName> q_norm;  // [D]
  std::optional<WeightName> k_norm;  // [D]
  WeightName post_attention_norm;    // [E]
  WeightName gate;                   // [F, E]
  WeightName up;                     // [F, E]
  WeightName down;                   // [E, F]
};

struct ModelWeightNames {
  WeightName embed;                      // [V, E]
  std::vector<LayerWeightNames> layers;  // [L]
  WeightName final_norm;                 // [E]
  WeightName head;                       // [V, E]; the embedding's name if they are tied
};

ModelWeightNames NameWeights(const ModelConfig& config);

// Every tensor once, in the model's order.
std::vector<WeightName> ListWeights(const ModelWeightNames& names);

}  // namespace foretoken::model
