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
#include "common/weights/checkpoint.h"
#include "kernels/check.h"
#include "kernels/dtype.h"

namespace foretoken::testing {
namespace {

using nlohmann::json;

// Hugging Face's roles of a layer by GGUF's.
const std::map<std::string, std::string> kRoles = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

std::string GgufName(const std::string& name) {
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  const std::string rest = name.substr(std::string("model.layers.").size());
  const size_t layer_end = rest.find('.'), role_end = rest.rfind('.');
  return "blk." + rest.substr(0, layer_end) + "." + kRoles.at(rest.substr(layer_end + 1, role_end - layer_end - 1)) +
         rest.substr(role_end);
}

std::vector<float> ValuesOf(const weights::StoredTensor& tensor) {
  const size_t size = tensor.dtype == "F32" ? 4 : 2;
  std::vector<float> values(tensor.bytes.size() / size);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, tensor.bytes.data() + i * size, size);
    const auto half = static_cast<uint16_t>(bits);
    if (size == 4) {
      std::memcpy(&values[i], &bits, size);
    } else {
      values[i] = tensor.dtype == "F16" ? kernels::FloatFromF16(half) : kernels::FloatFromBf16(half);
    }
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
  return config.value("head_dim", config["hidden_size"].get<int64_t>() / config["num_attention_heads"].get<int64_t>());
}

void AddRope(const json& config, const std::string& architecture, GgufWriter& writer) {
  const json rope = config.value("rope_parameters", json::object());
  const double theta = rope.value("rope_theta", config.value("rope_theta", 10000.0));
  writer.Add(architecture + ".rope.freq_base", static_cast<float>(theta));
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
  if (type != "llama3") return;
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
  writer.AddTensor({.name = "rope_freqs.weight", .shape = {head_dim / 2}, .bytes = InF32("", divisors).bytes});
}

void AddConfig(const json& config, const std::string& architecture, GgufWriter& writer) {
  writer.Add("general.architecture", architecture);
  for (const auto& [ending, name] : {std::pair(".context_length", "max_position_embeddings"),
                                     {".embedding_length", "hidden_size"},
                                     {".block_count", "num_hidden_layers"},
                                     {".feed_forward_length", "intermediate_size"},
                                     {".attention.head_count", "num_attention_heads"},
                                     {".attention.head_count_kv", "num_key_value_heads"}}) {
    writer.Add(architecture + ending, config[name].get<uint32_t>());
  }
  writer.Add(architecture + ".attention.key_length", static_cast<uint32_t>(HeadDimOf(config)));
  writer.Add(architecture + ".attention.value_length", static_cast<uint32_t>(HeadDimOf(config)));
  writer.Add(architecture + ".attention.layer_norm_rms_epsilon", config["rms_norm_eps"].get<float>());
  const auto first = [](const json& ids) { return ids.is_array() ? ids[0].get<uint32_t>() : ids.get<uint32_t>(); };
  if (!config["bos_token_id"].is_null()) writer.Add("tokenizer.ggml.bos_token_id", first(config["bos_token_id"]));
  writer.Add("tokenizer.ggml.eos_token_id", first(config["eos_token_id"]));
  AddRope(config, architecture, writer);
}

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

GgufWriter GgufTwin(const std::string& directory, const GgufTwinOptions& options) {
  GgufWriter writer;
  const json config = base::ReadJson(directory + "/config.json").value();
  const std::string architecture = config["model_type"];
  AddConfig(config, architecture, writer);
  const bool has_own = options.tokenizer_directory.empty();
  AddTokenizer(TokenizerOf(has_own ? directory : options.tokenizer_directory, config["vocab_size"]), options.pre,
               writer);
  const auto chat_template = base::ReadFile(directory + "/chat_template.jinja");
  if (chat_template.ok()) writer.Add("tokenizer.chat_template", *chat_template);
  const weights::Checkpoint checkpoint = weights::Checkpoint::Open(directory).value();
  for (const std::string& name : checkpoint.Names()) {
    const weights::StoredTensor& tensor = *checkpoint.FindStored(name);
    std::vector<float> values = ValuesOf(tensor);
    const bool is_rotated = name.find("q_proj") != std::string::npos || name.find("k_proj") != std::string::npos;
    if (architecture == "llama" && is_rotated) values = Interleaved(values, tensor.shape[0], HeadDimOf(config));
    const EncodedMatrix encoded = tensor.shape.size() == 1 ? InF32(name, values) : options.encode(name, values);
    writer.AddTensor({.name = GgufName(name), .type = encoded.type, .shape = tensor.shape, .bytes = encoded.bytes});
  }
  return writer;
}

}  // namespace foretoken::testing
