// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/models/quantized_twins.h"

#include <string>
#include <vector>

#include "common/model/weight_names.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {

using nlohmann::json;

json QuantizedTwins::Config() {
  return {{"model_type", "qwen3"},  {"hidden_size", 128},       {"intermediate_size", 352},
          {"num_hidden_layers", 2}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"head_dim", 32},         {"vocab_size", 320},        {"max_position_embeddings", 512}};
}

QuantizedTwins::QuantizedTwins(const QuantizedFormat& format, bool is_mixed) {
  RandomValues random(1);
  json config = Config();
  plain.Write("config.json", config.dump());
  RawTensors plain_tensors, quantized_tensors;
  int count = 0;
  for (const model::WeightName& weight :
       model::ListWeights(model::NameWeights(model::ParseModelConfig(config.dump(), "c").value()))) {
    const bool is_vector = weight.shape.rank == 1;
    const int64_t outputs = is_vector ? 1 : weight.shape[0], inputs = is_vector ? weight.shape[0] : weight.shape[1];
    const bool is_plain = is_vector || weight.name.find("embed") != std::string::npos || (is_mixed && ++count % 3 == 0);
    const QuantizedLayer layer = is_vector ? QuantizedLayer{.shape = {.outputs = 1, .inputs = inputs},
                                                            .values = std::vector<float>(inputs, 1.25f)}
                                           : format.make(outputs, inputs, random);
    reference::RawTensor floats = AsBf16(layer);
    if (is_vector) floats.shape = {inputs};
    plain_tensors[weight.name] = floats;
    if (is_plain) {
      quantized_tensors[weight.name] = floats;
    } else {
      AddLayer(weight.name.substr(0, weight.name.size() - 7), layer.tensors, quantized_tensors);
    }
  }
  config["quantization_config"] = format.config;
  quantized.Write("config.json", config.dump());
  plain.Write("model.safetensors", SafetensorsOf(plain_tensors));
  quantized.Write("model.safetensors", SafetensorsOf(quantized_tensors));
}

}  // namespace foretoken::testing
