// SPDX-License-Identifier: Apache-2.0
// Random layers in every quantised format that is read, with the values that the reference reads from them, and the
// files that hold them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/reference/quantized.h"
#include "tests/testing/cases/random_values.h"

namespace foretoken::testing {

struct QuantizedLayer {
  reference::QuantizedShape shape;
  reference::RawLayer tensors;
  std::vector<float> values;  // [outputs][inputs]
};

struct QuantizedFormat {
  std::string name;
  nlohmann::json config;    // its quantization_config
  bool has_groups = false;  // its matrices say their groups
  bool has_unread = false;  // its files have scales of activations, which nobody reads
  // Makes a layer. Outputs and inputs are multiples of 32.
  std::function<QuantizedLayer(int64_t outputs, int64_t inputs, RandomValues&)> make;
};

const std::vector<QuantizedFormat>& QuantizedFormats();

using RawTensors = std::map<std::string, reference::RawTensor>;  // by full name

void AddLayer(const std::string& layer, const reference::RawLayer& tensors, RawTensors& all);
std::string SafetensorsOf(const RawTensors& tensors);

// The values as a BF16 tensor, rounded to nearest, ties to even.
reference::RawTensor AsBf16(const QuantizedLayer& layer);

}  // namespace foretoken::testing
