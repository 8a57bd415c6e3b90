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

#include "common/model/config/config.h"
#include "kernels/tensor_view.h"

namespace foretoken::model {

struct WeightName {
  std::string name;
  kernels::Shape shape;
  // If several roles share a stored tensor, this one has its rows from first_row on.
  int64_t first_row = 0;
  std::optional<int64_t> num_stored_rows;  // unset: shape[0]

  // The whole tensor, as it is stored.
  WeightName stored() const;
};

struct ExpertWeightNames {
  std::vector<WeightName> gate_up;       // [2 F, E] stacked: gate and up, or one that has both
  std::vector<WeightName> gate_up_bias;  // [2 F] stacked likewise, or empty
  WeightName down;                       // [E, F]
  std::optional<WeightName> down_bias;   // [E]
};

struct LayerWeightNames {
  std::optional<WeightName> input_norm;           // [E] of what enters attention
  WeightName q;                                   // [H D, E]
  WeightName k;                                   // [K D, E]
  WeightName v;                                   // [K D, E]
  WeightName o;                                   // [E, H D]
  std::optional<WeightName> q_bias;               // [H D]
  std::optional<WeightName> k_bias;               // [K D]
  std::optional<WeightName> v_bias;               // [K D]
  std::optional<WeightName> o_bias;               // [E]
  std::optional<WeightName> q_norm;               // [D], or [H D] of the whole q
  std::optional<WeightName> k_norm;               // [D], or [K D] of the whole k
  std::optional<WeightName> sinks;                // [H]
  std::optional<WeightName> attention_post_norm;  // [E] of what attention adds to the residual stream
  std::optional<WeightName> mlp_norm;             // [E] of what enters the MLP
  WeightName gate;                                // [F, E]
  WeightName up;                                  // [F, E]
  WeightName down;                                // [E, F]
  std::optional<WeightName> router;               // [N, E] of a layer with experts; its gate, up and down belong
                                                  // to what all tokens share, or have no name
  std::optional<WeightName> router_bias;          // [N] of the scores
  std::optional<WeightName> choice_bias;          // [N] in the choice alone
  std::vector<ExpertWeightNames> experts;         // [N], or empty
  std::optional<WeightName> gate_bias;            // [F]
  std::optional<WeightName> up_bias;              // [F]
  std::optional<WeightName> down_bias;            // [E]
  std::optional<WeightName> mlp_post_norm;        // [E] of what the MLP adds
};

struct ModelWeightNames {
  WeightName embed;                      // [V, E]
  std::vector<LayerWeightNames> layers;  // [L]
  WeightName final_norm;                 // [E]
  WeightName head;                       // [V, E]; the embedding's name if they are tied
};

ModelWeightNames NameWeights(const ModelConfig& config);

// The layer's matrices as they are stored, each once. The router is none of them: no option quantises it.
std::vector<WeightName> ListMatrices(const LayerWeightNames& layer);

// What the layer's experts read, as it is stored, each tensor once.
std::vector<WeightName> ListExperts(const LayerWeightNames& layer);

// Every stored tensor once, in the model's order.
std::vector<WeightName> ListWeights(const ModelWeightNames& names);

}  // namespace foretoken::model
