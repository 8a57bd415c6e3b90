// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/models/quantized_layers.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/dtype.h"
#include "tests/testing/models/safetensors_writer.h"

namespace foretoken::testing {
namespace {

using nlohmann::json;
using reference::QuantizedShape;
using reference::RawLayer;
using reference::RawTensor;
using Dims = std::vector<int64_t>;

void Append(std::string& bytes, uint64_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
}

int64_t Count(const Dims& dims) { return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>()); }

RawTensor RandomBytes(const std::string& dtype, const Dims& dims, int item_bytes, RandomValues& random) {
  RawTensor tensor = {.dtype = dtype, .shape = dims, .bytes = {}};
  for (int64_t i = 0; i < Count(dims) * item_bytes; ++i) Append(tensor.bytes, random.Below(256), 1);
  return tensor;
}

// Positive scales of about `size`.
RawTensor Scales(const std::string& dtype, const Dims& dims, double size, RandomValues& random) {
  RawTensor tensor = {.dtype = dtype, .shape = dims, .bytes = {}};
  for (int64_t i = 0; i < Count(dims); ++i) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(size * (0.5 + random.Uniform())));
    if (dtype == "F32") Append(tensor.bytes, bits, 4);
    if (dtype == "BF16") Append(tensor.bytes, bits >> 16, 2);
    // The scales are normal numbers of F16.
    if (dtype == "F16") Append(tensor.bytes, (bits >> 13) - (112u << 10), 2);
    if (dtype == "U8" || dtype == "F8_E8M0") Append(tensor.bytes, bits >> 23, 1);
  }
  return tensor;
}

// Codes of size c make values of the size of a weight.
double ScaleOf(int64_t inputs, double code_size) { return 1 / (std::sqrt(static_cast<double>(inputs)) * code_size); }

RawTensor Index(int64_t inputs, int64_t num_groups, bool is_shuffled, RandomValues& random) {
  std::vector<int64_t> groups(inputs);
  for (int64_t i = 0; i < inputs; ++i) groups[i] = i / (inputs / num_groups);
  for (int64_t i = inputs - 1; is_shuffled && i > 0; --i) std::swap(groups[i], groups[random.Below(i + 1)]);
  RawTensor tensor = {.dtype = "I32", .shape = {inputs}, .bytes = {}};
  for (const int64_t group : groups) Append(tensor.bytes, group, 4);
  return tensor;
}

struct IntegerOptions {
  int bits = 4;
  int64_t group_size = 32;  // 0: one group
  const char* dtype = "BF16";
  bool has_zeros = false;
  bool is_shuffled = false;
};

QuantizedFormat Packed(const std::string& name, const IntegerOptions& options) {
  const auto make = [options](int64_t outputs, int64_t inputs, RandomValues& random) {
    const int64_t size = options.group_size > 0 ? options.group_size : inputs, num_groups = inputs / size;
    QuantizedLayer layer{.shape = {.outputs = outputs, .inputs = inputs, .bits = options.bits, .group_size = size}};
    layer.tensors["weight_packed"] = RandomBytes("I32", {outputs, (inputs * options.bits + 31) / 32}, 4, random);
    layer.tensors["weight_scale"] =
        Scales(options.dtype, {outputs, num_groups}, ScaleOf(inputs, 1 << (options.bits - 1)), random);
    if (options.has_zeros) {
      layer.tensors["weight_zero_point"] =
          RandomBytes("I32", {(outputs * options.bits + 31) / 32, num_groups}, 4, random);
    }
    if (options.is_shuffled) layer.tensors["weight_g_idx"] = Index(inputs, num_groups, true, random);
    RawTensor sizes = {.dtype = "I64", .shape = {2}, .bytes = {}};
    Append(sizes.bytes, outputs, 8);
    Append(sizes.bytes, inputs, 8);
    layer.tensors["weight_shape"] = sizes;
    layer.values = reference::PackQuantizedValues(layer.tensors, layer.shape);
    return layer;
  };
  json weights = {{"num_bits", options.bits}, {"type", "int"}, {"symmetric", !options.has_zeros}};
  weights["strategy"] = options.group_size > 0 ? "group" : "channel";
  if (options.group_size > 0) weights["group_size"] = options.group_size;
  return {.name = name,
          .config = {{"quant_method", "compressed-tensors"},
                     {"format", "pack-quantized"},
                     {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}},
          .has_groups = options.bits == 4 || options.bits == 8,
          .make = make};
}

QuantizedFormat Int8(const std::string& name, const IntegerOptions& options) {
  const auto make = [options](int64_t outputs, int64_t inputs, RandomValues& random) {
    const int64_t size = options.group_size > 0 ? options.group_size : inputs;
    const Dims scales = {outputs, inputs / size};
    QuantizedLayer layer{.shape = {.outputs = outputs, .inputs = inputs, .bits = 8, .group_size = size}};
    layer.tensors["weight"] = RandomBytes("I8", {outputs, inputs}, 1, random);
    layer.tensors["weight_scale"] = Scales(options.dtype, scales, ScaleOf(inputs, 128), random);
    if (options.has_zeros) layer.tensors["weight_zero_point"] = RandomBytes("I8", scales, 1, random);
    layer.tensors["input_scale"] = Scales("F32", {1}, 0.1, random);  // of activations: read over
    layer.values = reference::IntQuantizedValues(layer.tensors, layer.shape);
    return layer;
  };
  const json weights = {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}};
  const json group = {{"weights", weights}, {"input_activations", {{"num_bits", 8}, {"dynamic", true}}}};
  return {.name = name,
          .config = {{"quant_method", "compressed-tensors"},
                     {"format", "int-quantized"},
                     {"config_groups", {{"group_0", group}}}},
          .has_groups = true,
          .has_unread = true,
          .make = make};
}

QuantizedFormat Gptq(const std::string& name, const IntegerOptions& options, bool is_v2) {
  const auto make = [options, is_v2](int64_t outputs, int64_t inputs, RandomValues& random) {
    const int64_t size = options.group_size > 0 ? options.group_size : inputs, num_groups = inputs / size;
    QuantizedLayer layer{
        .shape = {.outputs = outputs, .inputs = inputs, .bits = options.bits, .group_size = size, .is_gptq_v2 = is_v2}};
    layer.tensors["qweight"] = RandomBytes("I32", {inputs * options.bits / 32, outputs}, 4, random);
    RawTensor zeros = RandomBytes("I32", {num_groups, outputs * options.bits / 32}, 4, random);
    if (!options.has_zeros) std::ranges::fill(zeros.bytes, options.bits == 4 ? '\x77' : '\x7f');
    layer.tensors["qzeros"] = zeros;
    layer.tensors["scales"] =
        Scales(options.dtype, {num_groups, outputs}, ScaleOf(inputs, 1 << (options.bits - 1)), random);
    layer.tensors["g_idx"] = Index(inputs, num_groups, options.is_shuffled, random);
    layer.values = reference::GptqValues(layer.tensors, layer.shape);
    return layer;
  };
  return {.name = name,
          .config = {{"quant_method", "gptq"},
                     {"bits", options.bits},
                     {"group_size", options.group_size > 0 ? options.group_size : -1},
                     {"checkpoint_format", is_v2 ? "gptq_v2" : "gptq"}},
          .has_groups = true,
          .make = make};
}

QuantizedFormat Awq() {
  const auto make = [](int64_t outputs, int64_t inputs, RandomValues& random) {
    QuantizedLayer layer{.shape = {.outputs = outputs, .inputs = inputs, .bits = 4, .group_size = 32}};
    layer.tensors["qweight"] = RandomBytes("I32", {inputs, outputs / 8}, 4, random);
    layer.tensors["qzeros"] = RandomBytes("I32", {inputs / 32, outputs / 8}, 4, random);
    layer.tensors["scales"] = Scales("F16", {inputs / 32, outputs}, ScaleOf(inputs, 8), random);
    layer.values = reference::AwqValues(layer.tensors, layer.shape);
    return layer;
  };
  return {.name = "awq",
          .config = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}, {"version", "gemm"}},
          .has_groups = true,
          .make = make};
}

// The same layer, as another writer declares it, with what that writer stores beside it.
QuantizedFormat DeclaredAs(const std::string& name, const json& config, QuantizedFormat format,
                           const char* activation_part = nullptr, const Dims& activation_dims = {}) {
  format.name = name;
  format.config = config;
  if (activation_part == nullptr) return format;
  format.has_unread = true;
  const auto make = format.make;
  format.make = [=](int64_t outputs, int64_t inputs, RandomValues& random) {
    QuantizedLayer layer = make(outputs, inputs, random);
    layer.tensors[activation_part] = Scales("F32", activation_dims, 0.1, random);  // of activations: read over
    return layer;
  };
  return format;
}

struct Fp8Options {
  const char* part = "weight_scale";
  const char* dtype = "F32";
  int64_t block_outputs = 0;  // 0: all
  int64_t block_inputs = 0;
  json config;
};

QuantizedFormat Fp8(const std::string& name, const Fp8Options& options) {
  const auto make = [options](int64_t outputs, int64_t inputs, RandomValues& random) {
    const int64_t rows = options.block_outputs > 0 ? options.block_outputs : outputs;
    const int64_t columns = options.block_inputs > 0 ? options.block_inputs : inputs;
    QuantizedLayer layer{
        .shape = {.outputs = outputs, .inputs = inputs, .block_outputs = rows, .block_inputs = columns}};
    RawTensor weight = RandomBytes("F8_E4M3", {outputs, inputs}, 1, random);
    for (char& code : weight.bytes) {
      if ((code & 0x7f) == 0x7f) code = 0x7e;  // no NaN
    }
    layer.tensors["weight"] = weight;
    Dims dims = {(outputs + rows - 1) / rows, (inputs + columns - 1) / columns};
    if (options.block_outputs == 0) dims = {};
    layer.tensors[options.part] = Scales(options.dtype, dims, ScaleOf(inputs, 100), random);
    layer.values = reference::Fp8Values(layer.tensors, layer.shape);
    return layer;
  };
  return {.name = name, .config = options.config, .has_groups = false, .make = make};
}

QuantizedFormat Mxfp4(const std::string& scale_dtype) {
  const auto make = [scale_dtype](int64_t outputs, int64_t inputs, RandomValues& random) {
    QuantizedLayer layer{.shape = {.outputs = outputs, .inputs = inputs}};
    layer.tensors["weight_packed"] = RandomBytes("U8", {outputs, inputs / 2}, 1, random);
    layer.tensors["weight_scale"] = Scales(scale_dtype, {outputs, inputs / 32}, ScaleOf(inputs, 2), random);
    layer.values = reference::Mxfp4Values(layer.tensors, layer.shape);
    return layer;
  };
  const json weights = {{"num_bits", 4}, {"type", "float"}, {"strategy", "group"}, {"group_size", 32}};
  return {.name = "mxfp4_" + scale_dtype,
          .config = {{"quant_method", "compressed-tensors"},
                     {"format", "mxfp4-pack-quantized"},
                     {"config_groups", {{"group_0", {{"weights", weights}}}}}},
          .has_groups = true,
          .make = make};
}

std::vector<QuantizedFormat> MakeFormats() {
  const json channel = {{"quant_method", "compressed-tensors"}, {"format", "float-quantized"}};
  const json blocks = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  const json small = {{"quant_method", "fp8"}, {"weight_block_size", {48, 80}}};
  std::vector<QuantizedFormat> formats = {
      Packed("packed_4_group", {}),
      Packed("packed_4_zeros", {.dtype = "F16", .has_zeros = true}),
      Packed("packed_4_index", {.has_zeros = true, .is_shuffled = true}),
      Packed("packed_8_channel", {.bits = 8, .group_size = 0}),
      Packed("packed_8_zeros", {.bits = 8, .dtype = "F16", .has_zeros = true}),
      Int8("int8_channel", {.group_size = 0, .dtype = "F32"}),
      Int8("int8_zeros", {.dtype = "BF16", .has_zeros = true}),
      Gptq("gptq_4", {.dtype = "F16"}, false),
      Gptq("gptq_4_zeros", {.dtype = "F16", .has_zeros = true}, false),
      Gptq("gptq_4_v2", {.group_size = 0, .dtype = "F16", .has_zeros = true}, true),
      Gptq("gptq_4_index", {.dtype = "F16", .has_zeros = true, .is_shuffled = true}, false),
      Gptq("gptq_8_zeros", {.bits = 8, .dtype = "BF16", .has_zeros = true}, false),
      Awq(),
      Fp8("fp8_tensor", {.config = channel}),
      Fp8("fp8_channel", {.dtype = "BF16", .block_outputs = 1, .config = channel}),
      Fp8("fp8_blocks", {.part = "weight_scale_inv", .block_outputs = 128, .block_inputs = 128, .config = blocks}),
      Fp8("fp8_blocks_F16", {.dtype = "F16", .block_outputs = 48, .block_inputs = 80, .config = small}),
      Fp8("fp8_blocks_E8M0", {.part = "weight_scale_inv",
                              .dtype = "F8_E8M0",
                              .block_outputs = 128,
                              .block_inputs = 128,
                              .config = blocks}),
      DeclaredAs("auto_round_gptq",
                 {{"quant_method", "auto-round"},
                  {"bits", 4},
                  {"group_size", 32},
                  {"sym", true},
                  {"packing_format", "auto_round:auto_gptq"}},
                 Gptq("", {.dtype = "F16"}, false)),
      DeclaredAs("auto_round_awq",
                 {{"quant_method", "auto-round"},
                  {"bits", 4},
                  {"group_size", 32},
                  {"sym", false},
                  {"packing_format", "auto_round:auto_awq"}},
                 Awq()),
      DeclaredAs("modelopt_fp8", {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}}, Fp8("", {}), "input_scale"),
      DeclaredAs("fbgemm_fp8", {{"quant_method", "fbgemm_fp8"}, {"activation_scale_ub", 1200.0}},
                 Fp8("", {.block_outputs = 1}), "input_scale_ub", {1}),
      Mxfp4("U8"),
      Mxfp4("F8_E8M0"),
  };
  for (const int bits : {1, 2, 3, 5, 6, 7}) {
    formats.push_back(Packed("packed_" + std::to_string(bits), {.bits = bits, .has_zeros = bits % 2 == 1}));
  }
  return formats;
}

}  // namespace

const std::vector<QuantizedFormat>& QuantizedFormats() {
  static const std::vector<QuantizedFormat> formats = MakeFormats();
  return formats;
}

void AddLayer(const std::string& layer, const RawLayer& tensors, RawTensors& all) {
  for (const auto& [part, tensor] : tensors) all[layer + "." + part] = tensor;
}

std::string SafetensorsOf(const RawTensors& tensors) {
  // Like the format's own writer: tensors of one byte per element come last, so that the others are aligned.
  std::vector<std::pair<std::string, RawTensor>> ordered(tensors.begin(), tensors.end());
  std::ranges::stable_partition(ordered, [](const auto& entry) {
    return !entry.second.dtype.ends_with('8') && !entry.second.dtype.starts_with("F8");
  });
  json header = json::object();
  std::string data;
  for (const auto& [name, tensor] : ordered) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  return SafetensorsBytes(header.dump(), 0) + data;
}

RawTensor AsBf16(const QuantizedLayer& layer) {
  RawTensor tensor = {.dtype = "BF16", .shape = {layer.shape.outputs, layer.shape.inputs}, .bytes = {}};
  for (const float value : layer.values) Append(tensor.bytes, kernels::Bf16FromFloat(value), 2);
  return tensor;
}

}  // namespace foretoken::testing
