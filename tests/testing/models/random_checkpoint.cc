// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/models/random_checkpoint.h"

#include <cmath>
#include <vector>

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
  if (name == "glm4_moe") {
    config.update({{"model_type", "glm4_moe"},
                   {"n_routed_experts", 8},
                   {"num_experts_per_tok", 2},
                   {"moe_intermediate_size", 120},
                   {"attention_bias", true}});
  }
  if (name == "gpt_oss") {  // 320 are ten groups of MXFP4, of which a rank of four would have two and a half
    config.update(
        {{"model_type", "gpt_oss"},
         {"num_local_experts", 6},
         {"num_experts_per_tok", 2},
         {"intermediate_size", 320},
         {"sliding_window", 20},
         {"rope_scaling",
          {{"rope_type", "yarn"}, {"factor", 4}, {"truncate", false}, {"original_max_position_embeddings", 64}}}});
  }
  if (name == "gemma2") config.update({{"model_type", "gemma2"}, {"sliding_window", 24}});
  if (name == "phi3_longrope") {
    config.update({{"model_type", "phi3"},
                   {"vocab_size", 4096},
                   {"max_position_embeddings", 8192},
                   {"original_max_position_embeddings", 4096},
                   {"rope_scaling",
                    {{"type", "longrope"},
                     {"short_factor", std::vector<double>(16, 1)},
                     {"long_factor", std::vector<double>(16, 4)}}},
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

class Tensors {
 public:
  void AddBf16(const model::WeightName& weight, RandomValues& random) {
    std::string bytes;
    for (int64_t i = 0; i < weight.shape.num_elements(); ++i) {
      const uint16_t bits = kernels::Bf16FromFloat(RandomElement(weight, random));
      bytes.push_back(static_cast<char>(bits & 0xff));
      bytes.push_back(static_cast<char>(bits >> 8));
    }
    Add(weight.name, "BF16", {weight.shape.dims.begin(), weight.shape.dims.begin() + weight.shape.rank}, bytes);
  }

  // Random codes, whose mean square is 8, and scales that make about the inverse of the inputs of it.
  void AddMxfp4(const model::WeightName& weight, RandomValues& random) {
    const int64_t num_rows = weight.shape[0], num_inputs = weight.shape[1];
    std::string codes, scales;
    for (int64_t i = 0; i < num_rows * num_inputs / 2; ++i) codes.push_back(static_cast<char>(random.Below(256)));
    const auto exponent = static_cast<uint32_t>(127 - std::lround(std::log2(8 * num_inputs) / 2));
    for (int64_t i = 0; i < num_rows * num_inputs / 32; ++i) {
      scales.push_back(static_cast<char>(exponent + random.Below(2)));
    }
    const std::string name = weight.name.substr(0, weight.name.rfind('.'));
    Add(name + ".weight_packed", "U8", {num_rows, num_inputs / 2}, codes);
    Add(name + ".weight_scale", "U8", {num_rows, num_inputs / 32}, scales);
  }

  std::string FileBytes() const { return SafetensorsBytes(header_.dump(), 0) + data_; }

 private:
  void Add(const std::string& name, const char* dtype, const std::vector<int64_t>& shape, const std::string& bytes) {
    header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
  }

  json header_;
  std::string data_;
};

}  // namespace

RandomCheckpoint::RandomCheckpoint(const std::string& name) {
  const std::string text = ConfigOf(name).dump();
  dir_.Write("config.json", text);
  const model::ModelConfig config = model::ParseModelConfig(text, name).value();
  RandomValues random(1);
  Tensors tensors;
  for (const model::WeightName& weight : model::ListWeights(model::NameWeights(config))) {
    const bool is_mxfp4 = config.quantization.has_transposed_experts && weight.shape.rank == 2 &&
                          weight.name.find(".experts.") != std::string::npos;
    is_mxfp4 ? tensors.AddMxfp4(weight, random) : tensors.AddBf16(weight, random);
  }
  dir_.Write("model.safetensors", tensors.FileBytes());
}

}  // namespace foretoken::testing
