// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/models/gguf_twin.h"

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

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

json TokenizerOf(const std::string& directory, int64_t vocab_size) {
  const std::string path = directory + "/tokenizer.json";
  return std::filesystem::exists(path) ? base::ReadJson(path).value() : PlainTokenizer(vocab_size);
}

}  // namespace

GgufWriter GgufTwin(const std::string& directory, const GgufTwinOptions& options) {
  GgufWriter writer;
  const json config = base::ReadJson(directory + "/config.json").value();
  AddConfig(config, writer);
  const bool has_own = options.tokenizer_directory.empty();
  AddTokenizer(TokenizerOf(has_own ? directory : options.tokenizer_directory, config["vocab_size"]), options.pre,
               writer);
  const auto chat_template = base::ReadFile(directory + "/chat_template.jinja");
  if (chat_template.ok()) writer.Add("tokenizer.chat_template", *chat_template);
  TensorWriter(directory, GgufArchitecture(config), options, writer).WriteAll();
  return writer;
}

}  // namespace foretoken::testing
