// SPDX-License-Identifier: Apache-2.0
// The values of quantised layers, one element at a time, bit by bit and in double. A layer is its tensors by the last
// part of their names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace foretoken::reference {

struct RawTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;

  friend bool operator==(const RawTensor&, const RawTensor&) = default;
};
using RawLayer = std::map<std::string, RawTensor>;

struct QuantizedShape {
  int64_t outputs = 0;
  int64_t inputs = 0;
  int bits = 4;
  int64_t group_size = 0;     // of integers: inputs; every layer without an index has them in order
  int64_t block_outputs = 0;  // of FP8
  int64_t block_inputs = 0;
  bool is_gptq_v2 = false;
};

// [outputs][inputs]; each value is rounded to f32 once.
std::vector<float> PackQuantizedValues(const RawLayer& layer, const QuantizedShape& shape);
std::vector<float> IntQuantizedValues(const RawLayer& layer, const QuantizedShape& shape);
std::vector<float> GptqValues(const RawLayer& layer, const QuantizedShape& shape);
std::vector<float> AwqValues(const RawLayer& layer, const QuantizedShape& shape);
std::vector<float> Fp8Values(const RawLayer& layer, const QuantizedShape& shape);
std::vector<float> Mxfp4Values(const RawLayer& layer, const QuantizedShape& shape);

}  // namespace foretoken::reference
