// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/models/random_checkpoint.h"

#include <cmath>

#include "common/model/weight_names.h"
#include "kernels/check.h"
#include "nlohmann/json.hpp"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/models/safetensors_writer.h"

namespace foretoken::testing {
namespace {

using nlohmann::json;

json ConfigOf(const std::string& name) {
  json config = {{"hidden_size", 256},       {"intermediate_size", 360},        {"num_hidden_layers", 3},
                 {"num_attention_heads", 8}, {"num_key_value_heads", 4},        {"head_dim", 32},
                 {"vocab_size", 301},        {"max_position_embeddings", 1024}, {"rms_norm_eps", 1e-5}};
  if (name == "llama") config.update({{"model_type", "llama"}, {"attention_bias", true}});
  if (name == "llama_tied") config.update({{"model_type", "llama"}, {"tie_word_embeddings", true}});
  if (name == "mistral") config.update({{"model_type", "mistral"}, {"sliding_window", 24}});
  if (name == "qwen2") config.update({{"model_type", "qwen2"}, {"tie_word_embeddings", true}});
  if (name == "qwen3") config.update({{"model_type", "qwen3"}});
  if (name == "olmo2") config.update({{"model_type", "olmo2"}, {"eos_token_id", nullptr}});
  if (name == "qwen3_moe") {
    config.update({{"model_type", "qwen3_moe"},
                   {"vocab_size", 4096},
                   {"num_experts", 8},
                   {"num_experts_per_tok", 2},
                   {"moe_intermediate_size", 128},
                   {"norm_topk_prob", true},
                   {"decoder_sparse_step", 1},
                   {"eos_token_id", 2}});
  }
  FT_CHECK(config.contains("model_type"));
  return config;
}

// Matrices keep the size of their inputs, so that logits have size 1. Gains vary around 1, and biases around 0.
float RandomElement(const model::WeightName& weight, RandomValues& random) {
  if (weight.shape.rank == 2) return random.Normal() / std::sqrt(static_cast<float>(weight.shape[1]));
  const bool is_bias = weight.name.ends_with("bias");
  return (is_bias ? 0.0f : 1.0f) + 0.2f * random.Normal();
}

}  // namespace

RandomCheckpoint::RandomCheckpoint(const std::string& name) {
  const std::string config = ConfigOf(name).dump();
  dir_.Write("config.json", config);
  RandomValues random(1);
  json header;
  std::string data;
  for (const model::WeightName& weight :
       model::ListWeights(model::NameWeights(model::ParseModelConfig(config, name).value()))) {
    const size_t begin = data.size();
    for (int64_t i = 0; i < weight.shape.num_elements(); ++i) {
      const uint16_t bits = kernels::Bf16FromFloat(RandomElement(weight, random));
      data.push_back(static_cast<char>(bits & 0xff));
      data.push_back(static_cast<char>(bits >> 8));
    }
    std::vector<int64_t> dims(weight.shape.dims.begin(), weight.shape.dims.begin() + weight.shape.rank);
    header[weight.name] = {{"dtype", "BF16"}, {"shape", dims}, {"data_offsets", {begin, data.size()}}};
  }
  dir_.Write("model.safetensors", SafetensorsBytes(header.dump(), 0) + data);
}

}  // namespace foretoken::testing
