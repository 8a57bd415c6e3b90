// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/models/gguf_keys.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>
#include <vector>

#include "tests/testing/models/gguf_matrix.h"

namespace foretoken::testing {
namespace {

using nlohmann::json;

// Names of architectures that are not Hugging Face's names of model types.
const std::map<std::string, std::string> kArchitectures = {
    {"mixtral", "llama"},    {"qwen3_moe", "qwen3moe"}, {"gemma3_text", "gemma3"},
    {"glm4_moe", "glm4moe"}, {"gpt_oss", "gpt-oss"},
};

int64_t HeadDimOf(const json& config) {
  if (!config.value("head_dim", json()).is_null()) return config["head_dim"];
  return config["hidden_size"].get<int64_t>() / config["num_attention_heads"].get<int64_t>();
}

// Some families give layers with a window a rotation of their own.
json FullRope(const json& config) {
  const json rope = config.value("rope_parameters", json::object());
  return rope.contains("full_attention") ? rope["full_attention"] : rope;
}

void AddDivisors(const std::string& name, const std::vector<float>& divisors, GgufWriter& writer) {
  writer.AddTensor(
      {.name = name, .shape = {static_cast<int64_t>(divisors.size())}, .bytes = InF32("", divisors).bytes});
}

void AddLlama3(const json& config, const json& rope, double theta, GgufWriter& writer) {
  const int64_t head_dim = HeadDimOf(config);
  std::vector<float> divisors;
  for (int64_t pair = 0; pair < head_dim / 2; ++pair) {
    const double wavelength = 2 * std::numbers::pi * std::pow(theta, 2.0 * pair / head_dim);
    const double positions = rope["original_max_position_embeddings"], factor = rope["factor"],
                 low = rope["low_freq_factor"], high = rope["high_freq_factor"];
    const double smooth = (positions / wavelength - low) / (high - low);
    divisors.push_back(static_cast<float>(wavelength < positions / high  ? 1
                                          : wavelength > positions / low ? factor
                                                                         : 1 / ((1 - smooth) / factor + smooth)));
  }
  AddDivisors("rope_freqs.weight", divisors, writer);
}

void AddLongRope(const json& config, const json& rope, const std::string& prefix, GgufWriter& writer) {
  const double original = rope["original_max_position_embeddings"];
  const double scale = config["max_position_embeddings"].get<double>() / original;
  writer.Add(prefix + "original_context_length", static_cast<uint32_t>(original));
  writer.Add(prefix + "attn_factor", static_cast<float>(std::sqrt(1 + std::log(scale) / std::log(original))));
  AddDivisors("rope_factors_short.weight", rope["short_factor"], writer);
  AddDivisors("rope_factors_long.weight", rope["long_factor"], writer);
}

void AddRope(const json& config, const std::string& architecture, GgufWriter& writer) {
  const json rope = FullRope(config), rotations = config.value("rope_parameters", json::object());
  const double theta = rope.value("rope_theta", config.value("rope_theta", 10000.0));
  writer.Add(architecture + ".rope.freq_base", static_cast<float>(theta));
  if (rotations.contains("sliding_attention")) {
    writer.Add(architecture + ".rope.freq_base_swa", rotations["sliding_attention"]["rope_theta"].get<float>());
  }
  const std::string type = rope.value("rope_type", "default");
  const std::string prefix = architecture + ".rope.scaling.";
  if (type == "linear" || type == "yarn") {
    writer.Add(prefix + "type", type);
    writer.Add(prefix + "factor", rope["factor"].get<float>());
    if (rope.contains("beta_fast")) writer.Add(prefix + "yarn_beta_fast", rope["beta_fast"].get<float>());
    if (type == "yarn") {
      writer.Add(prefix + "original_context_length", rope["original_max_position_embeddings"].get<uint32_t>());
    }
  }
  if (type == "llama3") AddLlama3(config, rope, theta, writer);
  if (type == "longrope") AddLongRope(config, rope, prefix, writer);
  const double part = rope.value("partial_rotary_factor", 1.0);
  if (part != 1) {
    writer.Add(architecture + ".rope.dimension_count",
               static_cast<uint32_t>(part * static_cast<double>(HeadDimOf(config))));
  }
}

// "a b" or ["a", "b"].
std::pair<std::string, std::string> SidesOf(const json& merge) {
  if (merge.is_array()) return {merge[0], merge[1]};
  const std::string text = merge;
  return {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
}

}  // namespace

std::string GgufArchitecture(const json& config) {
  const std::string type = config["model_type"];
  const auto found = kArchitectures.find(type);
  return found == kArchitectures.end() ? type : found->second;
}

void AddConfig(const json& config, GgufWriter& writer) {
  const std::string architecture = GgufArchitecture(config);
  writer.Add("general.architecture", architecture);
  const auto num_prediction_layers = config.value("num_nextn_predict_layers", 0u);
  writer.Add(architecture + ".block_count", config["num_hidden_layers"].get<uint32_t>() + num_prediction_layers);
  for (const auto& [ending, name] : {std::pair(".context_length", "max_position_embeddings"),
                                     {".embedding_length", "hidden_size"},
                                     {".feed_forward_length", "intermediate_size"},
                                     {".attention.head_count", "num_attention_heads"},
                                     {".attention.head_count_kv", "num_key_value_heads"},
                                     {".attention.sliding_window", "sliding_window"},
                                     {".expert_count", "num_local_experts"},
                                     {".expert_count", "num_experts"},
                                     {".expert_count", "n_routed_experts"},
                                     {".expert_used_count", "num_experts_per_tok"},
                                     {".expert_feed_forward_length", "moe_intermediate_size"},
                                     {".expert_shared_count", "n_shared_experts"},
                                     {".expert_group_count", "n_group"},
                                     {".leading_dense_block_count", "first_k_dense_replace"},
                                     {".nextn_predict_layers", "num_nextn_predict_layers"}}) {
    const bool is_left_out = name == std::string("num_nextn_predict_layers") && num_prediction_layers == 0;
    if (config.value(name, json()).is_null() || is_left_out) continue;
    writer.Add(architecture + ending, config[name].get<uint32_t>());
  }
  for (const auto& [ending, name] : {std::pair(".attention.layer_norm_rms_epsilon", "rms_norm_eps"),
                                     {".attn_logit_softcapping", "attn_logit_softcapping"},
                                     {".final_logit_softcapping", "final_logit_softcapping"},
                                     {".attention.scale", "attention_multiplier"},
                                     {".embedding_scale", "embedding_multiplier"},
                                     {".residual_scale", "residual_multiplier"},
                                     {".logit_scale", "logits_scaling"},
                                     {".expert_weights_scale", "routed_scaling_factor"}}) {
    if (!config.value(name, json()).is_null()) writer.Add(architecture + ending, config[name].get<float>());
  }
  if (architecture == "gpt-oss") {
    writer.Add(architecture + ".expert_feed_forward_length", config["intermediate_size"].get<uint32_t>());
  }
  if (architecture == "glm4moe") {
    writer.Add(architecture + ".expert_gating_func", uint32_t{2});
    writer.Add(architecture + ".expert_weights_norm", config["norm_topk_prob"].get<bool>());
  }
  writer.Add(architecture + ".attention.key_length", static_cast<uint32_t>(HeadDimOf(config)));
  writer.Add(architecture + ".attention.value_length", static_cast<uint32_t>(HeadDimOf(config)));
  for (const char* name : {"bos_token_id", "eos_token_id"}) {
    const json ids = config.value(name, json());
    if (ids.is_null()) continue;
    writer.Add(std::string("tokenizer.ggml.") + name, (ids.is_array() ? ids[0] : ids).get<uint32_t>());
  }
  AddRope(config, architecture, writer);
}

void AddTokenizer(const json& tokenizer, const std::string& pre, GgufWriter& writer) {
  const json& model = tokenizer["model"];
  const bool is_sentence_piece = model.value("byte_fallback", false);
  size_t num_ids = 0;
  for (const auto& [token, id] : model["vocab"].items()) num_ids = std::max(num_ids, id.get<size_t>() + 1);
  for (const json& token : tokenizer["added_tokens"]) num_ids = std::max(num_ids, token["id"].get<size_t>() + 1);
  std::vector<std::string> tokens;
  for (size_t id = 0; id < num_ids; ++id) tokens.push_back("[PAD" + std::to_string(id) + "]");
  std::vector<int32_t> kinds(num_ids, 5);
  std::vector<float> scores(num_ids, -1e6f);
  for (const auto& [token, id] : model["vocab"].items()) {
    tokens[id] = token;
    kinds[id] = is_sentence_piece && token.size() == 6 && token.starts_with("<0x") ? 6 : 1;
  }
  for (const json& token : tokenizer["added_tokens"]) {
    tokens[token["id"]] = token["content"];
    kinds[token["id"]] = token["content"] == "<unk>" ? 2 : token["special"].get<bool>() ? 3 : 4;
  }
  std::vector<std::string> merges;
  for (const json& merge : model["merges"]) {
    const auto [left, right] = SidesOf(merge);
    float& score = scores[model["vocab"][left + right]];
    if (score == -1e6f) score = -static_cast<float>(merges.size());
    merges.push_back(left + " " + right);
  }
  writer.Add("tokenizer.ggml.model", std::string(is_sentence_piece ? "llama" : "gpt2"));
  writer.Add("tokenizer.ggml.tokens", tokens);
  writer.Add("tokenizer.ggml.token_type", kinds);
  if (is_sentence_piece) {
    writer.Add("tokenizer.ggml.scores", scores);
  } else {
    writer.Add("tokenizer.ggml.merges", merges);
    writer.Add("tokenizer.ggml.pre", pre);
  }
}

json PlainTokenizer(int64_t vocab_size) {
  json vocabulary = json::object();
  for (int64_t id = 0; id < vocab_size; ++id) vocabulary["t" + std::to_string(id)] = id;
  return {{"model", {{"vocab", vocabulary}, {"merges", json::array()}}}, {"added_tokens", json::array()}};
}

GgufWriter GgufKeys(const json& config) {
  GgufWriter writer;
  AddConfig(config, writer);
  AddTokenizer(PlainTokenizer(config["vocab_size"]), "qwen2", writer);
  const int64_t num_rows = config["vocab_size"], width = config["hidden_size"];
  writer.AddTensor({.name = "token_embd.weight",
                    .shape = {num_rows, width},
                    .bytes = std::string(static_cast<size_t>(num_rows * width) * sizeof(float), '\0')});
  return writer;
}

}  // namespace foretoken::testing
