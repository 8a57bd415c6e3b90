// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/models/gguf_twin.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numbers>
#include <random>

#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/model/checkpoint_fit.h"
#include "common/model/config/config.h"
#include "common/model/weight_names.h"
#include "common/quantization/find_weight.h"
#include "common/weights/checkpoint.h"
#include "kernels/check.h"
#include "kernels/dtype.h"

namespace foretoken::testing {
namespace {

using nlohmann::json;

// Names of architectures that are not Hugging Face's names of model types.
const std::map<std::string, std::string> kArchitectures = {
    {"mixtral", "llama"},    {"qwen3_moe", "qwen3moe"}, {"gemma3_text", "gemma3"},
    {"glm4_moe", "glm4moe"}, {"gpt_oss", "gpt-oss"},
};

std::string ArchitectureOf(const json& config) {
  const std::string type = config["model_type"];
  const auto found = kArchitectures.find(type);
  return found == kArchitectures.end() ? type : found->second;
}

template <typename T>
const T& At(const kernels::ConstTensorView& view, size_t i) {
  return view.as<T>()[i];
}

std::vector<float> ValuesOf(const kernels::ConstTensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = view.dtype == kernels::DType::kF32   ? At<float>(view, i)
                : view.dtype == kernels::DType::kF16 ? kernels::FloatFromF16(At<uint16_t>(view, i))
                                                     : kernels::FloatFromBf16(At<uint16_t>(view, i));
  }
  return values;
}

// The rows as converters store q and k of Llama: the two halves of each head in turns.
std::vector<float> Interleaved(const std::vector<float>& values, int64_t num_rows, int64_t head_dim) {
  const int64_t width = static_cast<int64_t>(values.size()) / num_rows;
  std::vector<float> result;
  for (int64_t head = 0; head < num_rows; head += head_dim) {
    for (int64_t pair = 0; pair < head_dim / 2; ++pair) {
      for (const int64_t row : {head + pair, head + pair + head_dim / 2}) {
        result.insert(result.end(), values.begin() + row * width, values.begin() + (row + 1) * width);
      }
    }
  }
  return result;
}

template <typename T, typename Convert>
std::string Packed(const std::vector<float>& values, const Convert& convert) {
  std::vector<T> packed;
  for (const float value : values) packed.push_back(convert(value));
  return {reinterpret_cast<const char*>(packed.data()), packed.size() * sizeof(T)};
}

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

void AddConfig(const json& config, const std::string& architecture, GgufWriter& writer) {
  writer.Add("general.architecture", architecture);
  const auto count_prediction = config.value("num_nextn_predict_layers", 0u);
  writer.Add(architecture + ".block_count", config["num_hidden_layers"].get<uint32_t>() + count_prediction);
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
    const bool is_left_out = name == std::string("num_nextn_predict_layers") && count_prediction == 0;
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

// Writes a checkpoint's tensors under GGUF's names.
class TensorWriter {
 public:
  TensorWriter(const std::string& directory, std::string architecture, const GgufTwinOptions& options,
               GgufWriter& writer)
      : architecture_(std::move(architecture)),
        config_(model::LoadModelConfig(directory).value()),
        checkpoint_(weights::Checkpoint::Open(directory).value()),
        options_(options),
        writer_(writer) {
    FT_CHECK(model::FitToCheckpoint(opened_, config_).ok());
  }

  void WriteAll() {
    const model::ModelWeightNames names = model::NameWeights(config_);
    Matrix("token_embd.weight", names.embed);
    for (size_t layer = 0; layer < names.layers.size(); ++layer) {
      prefix_ = "blk." + std::to_string(layer) + ".";
      Attention(names.layers[layer]);
      Mlp(names.layers[layer]);
    }
    prefix_.clear();
    Gain("output_norm.weight", names.final_norm);
    if (names.head.name != names.embed.name) Matrix("output.weight", names.head);
  }

 private:
  void Attention(const model::LayerWeightNames& layer) {
    if (config_.fused_projections) {
      Matrix("attn_qkv.weight", layer.q.stored());
    } else {
      Rotated("attn_q.weight", layer.q);
      Rotated("attn_k.weight", layer.k);
      Matrix("attn_v.weight", layer.v);
    }
    Matrix("attn_output.weight", layer.o);
    if (layer.q_bias) Rotated("attn_q.bias", *layer.q_bias);
    if (layer.k_bias) Rotated("attn_k.bias", *layer.k_bias);
    Vector("attn_v.bias", layer.v_bias);
    Vector("attn_output.bias", layer.o_bias);
    Vector("attn_sinks.weight", layer.sinks);
    Gain("attn_norm.weight", layer.input_norm);
    Gain("attn_q_norm.weight", layer.q_norm);
    Gain("attn_k_norm.weight", layer.k_norm);
    Gain("post_attention_norm.weight", layer.attention_post_norm);
  }

  void Mlp(const model::LayerWeightNames& layer) {
    const bool is_after_attention = architecture_ == "glm4moe" || architecture_ == "gpt-oss";
    Gain(is_after_attention ? "post_attention_norm.weight" : "ffn_norm.weight", layer.mlp_norm);
    Gain("post_ffw_norm.weight", layer.mlp_post_norm);
    Vector("ffn_gate.bias", layer.gate_bias);
    Vector("ffn_up.bias", layer.up_bias);
    Vector("ffn_down.bias", layer.down_bias);
    const std::string ending = layer.router ? "_shexp.weight" : ".weight";
    if (config_.fused_projections) {
      Matrix("ffn_up.weight", layer.gate.stored());
    } else if (!layer.gate.name.empty()) {
      Matrix("ffn_gate" + ending, layer.gate);
      Matrix("ffn_up" + ending, layer.up);
    }
    if (!layer.down.name.empty()) Matrix("ffn_down" + ending, layer.down);
    if (!layer.router) return;
    Write("ffn_gate_inp.weight", layer.router->shape, InF32("", Values(*layer.router)));
    Vector("ffn_gate_inp.bias", layer.router_bias);
    Vector("exp_probs_b.bias", layer.choice_bias);
    Experts(layer);
  }

  // All experts' matrices of a kind as one tensor.
  void Experts(const model::LayerWeightNames& layer) {
    std::vector<float> gates, ups, downs, gate_biases, up_biases, down_biases;
    for (const model::ExpertWeightNames& expert : layer.experts) {
      AddGateAndUp(expert.gate_up, config_.hidden_size, gates, ups);
      Append(Values(expert.down), downs);
      if (expert.gate_up_bias.empty()) continue;
      AddGateAndUp(expert.gate_up_bias, 1, gate_biases, up_biases);
      Append(Values(*expert.down_bias), down_biases);
    }
    const auto count = static_cast<int64_t>(layer.experts.size());
    const int64_t width = config_.hidden_size, inner = config_.experts.intermediate_size;
    const std::string gate = layer.experts[0].gate_up[0].name, down = layer.experts[0].down.name;
    if (options_.fuses_experts) {
      Write("ffn_gate_up_exps.weight", kernels::Shape(count, 2 * inner, width),
            options_.encode(gate, ByExpert(gates, ups, inner * width)));
    } else {
      Write("ffn_gate_exps.weight", kernels::Shape(count, inner, width), options_.encode(gate, gates));
      Write("ffn_up_exps.weight", kernels::Shape(count, inner, width), options_.encode(gate, ups));
    }
    Write("ffn_down_exps.weight", kernels::Shape(count, width, inner), options_.encode(down, downs));
    if (gate_biases.empty()) return;
    Write("ffn_gate_exps.bias", kernels::Shape(count, inner), InF32("", gate_biases));
    Write("ffn_up_exps.bias", kernels::Shape(count, inner), InF32("", up_biases));
    Write("ffn_down_exps.bias", kernels::Shape(count, width), InF32("", down_biases));
  }

  // Rows of gate and up as they are stored: gate's first, or in turns.
  void AddGateAndUp(const std::vector<model::WeightName>& parts, int64_t row_size, std::vector<float>& gates,
                    std::vector<float>& ups) const {
    std::vector<float> both;
    for (const model::WeightName& part : parts) Append(Values(part), both);
    const int64_t num_rows = static_cast<int64_t>(both.size()) / row_size;
    for (int64_t row = 0; row < num_rows; ++row) {
      const bool is_gate = config_.gating.is_interleaved ? row % 2 == 0 : row < num_rows / 2;
      const auto begin = both.begin() + row * row_size;
      (is_gate ? gates : ups).insert((is_gate ? gates : ups).end(), begin, begin + row_size);
    }
  }

  // Each expert's part of both, the gate's first.
  static std::vector<float> ByExpert(const std::vector<float>& gates, const std::vector<float>& ups, int64_t part) {
    std::vector<float> both;
    for (auto gate = gates.begin(), up = ups.begin(); gate != gates.end(); gate += part, up += part) {
      both.insert(both.end(), gate, gate + part);
      both.insert(both.end(), up, up + part);
    }
    return both;
  }

  static void Append(const std::vector<float>& values, std::vector<float>& to) {
    to.insert(to.end(), values.begin(), values.end());
  }

  std::vector<float> Values(const model::WeightName& name) const {
    const model::WeightName whole = name.stored();
    if (name.shape.rank == 1) return ValuesOf(checkpoint_.Find(name.name, name.shape).value());
    const quantization::FoundWeight& found = *opened_.Find(whole.name, whole.shape, config_.quantization).value();
    std::vector<float> values(static_cast<size_t>(whole.shape.num_elements()));
    if (found.stored != nullptr) {
      found.stored->ReadValues(0, whole.shape[0], values.data());
    } else {
      values = ValuesOf(found.floats);
    }
    const auto begin = values.begin() + name.first_row * name.shape[1];
    return {begin, begin + name.shape.num_elements()};
  }

  void Matrix(const std::string& gguf_name, const model::WeightName& name) {
    Write(gguf_name, name.shape, options_.encode(name.name, Values(name)));
  }
  void Rotated(const std::string& gguf_name, const model::WeightName& name) {
    std::vector<float> values = Values(name);
    const bool is_interleaved = architecture_ == "llama" || architecture_ == "granite" || architecture_ == "smollm3";
    if (is_interleaved) values = Interleaved(values, name.shape[0], config_.head_dim);
    Write(gguf_name, name.shape, name.shape.rank == 1 ? InF32("", values) : options_.encode(name.name, values));
  }
  void Vector(const std::string& gguf_name, const std::optional<model::WeightName>& name, float offset = 0) {
    if (!name) return;
    std::vector<float> values = Values(*name);
    for (float& value : values) value += offset;
    Write(gguf_name, name->shape, InF32("", values));
  }
  // Gemma's offset is in the stored values.
  void Gain(const std::string& gguf_name, const std::optional<model::WeightName>& name) {
    Vector(gguf_name, name, static_cast<float>(config_.norm_offset));
  }
  void Write(const std::string& gguf_name, const kernels::Shape& shape, const EncodedMatrix& encoded) {
    writer_.AddTensor({.name = prefix_ + gguf_name,
                       .type = encoded.type,
                       .shape = {shape.dims.begin(), shape.dims.begin() + shape.rank},
                       .bytes = encoded.bytes});
  }

  const std::string architecture_;
  model::ModelConfig config_;
  const weights::Checkpoint checkpoint_;
  const quantization::OpenedWeights opened_{checkpoint_};
  const GgufTwinOptions& options_;
  GgufWriter& writer_;
  std::string prefix_;
};

// A token for each id: a model for tests of weights alone.
json PlainTokenizer(int64_t vocab_size) {
  json vocabulary = json::object();
  for (int64_t id = 0; id < vocab_size; ++id) vocabulary["t" + std::to_string(id)] = id;
  return {{"model", {{"vocab", vocabulary}, {"merges", json::array()}}}, {"added_tokens", json::array()}};
}

json TokenizerOf(const std::string& directory, int64_t vocab_size) {
  const std::string path = directory + "/tokenizer.json";
  return std::filesystem::exists(path) ? base::ReadJson(path).value() : PlainTokenizer(vocab_size);
}

// "a b" or ["a", "b"].
std::pair<std::string, std::string> SidesOf(const json& merge) {
  if (merge.is_array()) return {merge[0], merge[1]};
  const std::string text = merge;
  return {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
}

}  // namespace

EncodedMatrix InF32(const std::string&, const std::vector<float>& values) {
  return {.type = 0, .bytes = Packed<float>(values, [](float value) { return value; })};
}

EncodedMatrix InF16(const std::string&, const std::vector<float>& values) {
  return {.type = 1, .bytes = Packed<_Float16>(values, [](float value) { return static_cast<_Float16>(value); })};
}

EncodedMatrix InBf16(const std::string&, const std::vector<float>& values) {
  return {.type = 30, .bytes = Packed<uint16_t>(values, [](float value) { return kernels::Bf16FromFloat(value); })};
}

EncodedMatrix InRandomBlocks(const reference::GgufType& type, const std::string& name, size_t num_values) {
  std::mt19937 random(static_cast<uint32_t>(name.size() * 131 + static_cast<unsigned char>(name[name.size() / 2])));
  std::string bytes;
  for (size_t i = 0; i < num_values / type.block_values * type.block_bytes; ++i) {
    bytes.push_back(static_cast<char>(random()));
  }
  const bool has_two = type.name == "Q4_1" || type.name == "Q5_1" || type.name == "Q4_K" || type.name == "Q5_K";
  for (size_t block = 0; block < bytes.size(); block += type.block_bytes) {
    if (type.name == "MXFP4") bytes[block] = 120;
    for (const size_t at : {type.name == "Q6_K" ? size_t{208} : size_t{0}, size_t{2}}) {
      if (type.name == "MXFP4" || (at == 2 && !has_two)) continue;
      bytes[block + at + 1] = 0x10;  // about 2^-11
    }
  }
  return {.type = type.id, .bytes = bytes};
}

EncodedMatrix InTypesOfQ4KM(const std::string& name, const std::vector<float>& values) {
  const auto holds = [&](const char* part) { return name.find(part) != std::string::npos; };
  const std::string type = holds("v_proj") || holds("down_proj") || holds("embed_tokens") ? "Q6_K" : "Q4_K";
  return InRandomBlocks(*std::ranges::find(reference::GgufTypes(), type, &reference::GgufType::name), name,
                        values.size());
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

GgufWriter GgufKeys(const json& config) {
  GgufWriter writer;
  AddConfig(config, ArchitectureOf(config), writer);
  AddTokenizer(PlainTokenizer(config["vocab_size"]), "qwen2", writer);
  const int64_t num_rows = config["vocab_size"], width = config["hidden_size"];
  writer.AddTensor({.name = "token_embd.weight",
                    .shape = {num_rows, width},
                    .bytes = std::string(static_cast<size_t>(num_rows * width) * sizeof(float), '\0')});
  return writer;
}

GgufWriter GgufTwin(const std::string& directory, const GgufTwinOptions& options) {
  GgufWriter writer;
  const json config = base::ReadJson(directory + "/config.json").value();
  const std::string architecture = ArchitectureOf(config);
  AddConfig(config, architecture, writer);
  const bool has_own = options.tokenizer_directory.empty();
  AddTokenizer(TokenizerOf(has_own ? directory : options.tokenizer_directory, config["vocab_size"]), options.pre,
               writer);
  const auto chat_template = base::ReadFile(directory + "/chat_template.jinja");
  if (chat_template.ok()) writer.Add("tokenizer.chat_template", *chat_template);
  TensorWriter(directory, architecture, options, writer).WriteAll();
  return writer;
}

}  // namespace foretoken::testing
