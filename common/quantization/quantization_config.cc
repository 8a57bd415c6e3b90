// SPDX-License-Identifier: Apache-2.0
#include "common/quantization/quantization_config.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"

namespace foretoken::quantization {
namespace {

using model::JsonFields;

constexpr int64_t kMaxSize = int64_t{1} << 24;  // of groups and blocks
// Different sizes in one file. Every layer may name another one, and every matrix looks through all of them.
constexpr size_t kMaxSizes = 64;

// Adds what the field says. `key` is its name.
template <typename T>
absl::Status AddOnce(const JsonFields& fields, const char* key, std::vector<T>& list, T value) {
  if (std::ranges::find(list, value) != list.end()) return absl::OkStatus();
  if (list.size() == kMaxSizes) {
    return fields.Error(key, "expects at most ", kMaxSizes,
                        " different values in all, got one more: ", fields.Text(key));
  }
  list.push_back(value);
  return absl::OkStatus();
}

// Refuses a string that is not among `readable`; an absent one passes.
absl::Status CheckString(const JsonFields& fields, const char* key, std::span<const absl::string_view> readable,
                         absl::string_view need) {
  FT_ASSIGN_OR_RETURN(const auto value, fields.Optional<std::string>(key));
  if (!value || std::ranges::find(readable, absl::AsciiStrToLower(*value)) != readable.end()) return absl::OkStatus();
  return fields.Error(key, "expects ", absl::StrJoin(readable, ", "), ", got ", fields.Text(key), ": ", need);
}

// -1 stands for one group of all inputs, which the shape of the scales says, too.
absl::Status AddGroupSize(const JsonFields& fields, const char* key, QuantizationConfig& config) {
  FT_ASSIGN_OR_RETURN(const auto size, fields.Optional<int64_t>(key));
  if (!size || *size == -1) return absl::OkStatus();
  if (*size < 1 || *size > kMaxSize) {
    return fields.Error(key, "expects -1 or an integer from 1 to ", kMaxSize, ", got ", *size);
  }
  return AddOnce(fields, key, config.group_sizes, *size);
}

absl::Status AddBlockSize(const JsonFields& fields, const char* key, QuantizationConfig& config) {
  FT_ASSIGN_OR_RETURN(const auto sizes, fields.Optional<std::vector<int64_t>>(key));
  if (!sizes) return absl::OkStatus();
  const auto is_size = [](int64_t size) { return size >= 1 && size <= kMaxSize; };
  if (sizes->size() != 2 || !std::ranges::all_of(*sizes, is_size)) {
    return fields.Error(key, "expects two integers from 1 to ", kMaxSize, ", got ", fields.Text(key));
  }
  return AddOnce(fields, key, config.block_sizes, {.outputs = (*sizes)[0], .inputs = (*sizes)[1]});
}

absl::Status ReadGptq(const JsonFields& fields, QuantizationConfig& config) {
  FT_ASSIGN_OR_RETURN(const int64_t bits, fields.Required<int64_t>("bits"));
  if (bits != 4 && bits != 8) {
    return fields.Error("bits", "expects 4 or 8, got ", bits, ": the model is needed with GPTQ of 4 or 8 bits");
  }
  config.bits = {static_cast<int>(bits)};
  FT_RETURN_IF_ERROR(AddGroupSize(fields, "group_size", config));
  static constexpr absl::string_view kFormats[] = {"gptq", "gptq_v2"};
  FT_RETURN_IF_ERROR(CheckString(fields, "checkpoint_format", kFormats, "the model is needed in one of these layouts"));
  FT_ASSIGN_OR_RETURN(const bool is_marlin, fields.OrDefault<bool>("is_marlin_format", false));
  if (is_marlin) {
    return fields.Error("is_marlin_format", "expects false, got true: the model is needed in the layout gptq");
  }
  FT_ASSIGN_OR_RETURN(const auto format, fields.OrDefault<std::string>("checkpoint_format", "gptq"));
  config.is_gptq_v2 = absl::AsciiStrToLower(format) == "gptq_v2";
  return absl::OkStatus();
}

// quant_config.json has other names for two of the keys.
absl::Status ReadAwq(const JsonFields& fields, QuantizationConfig& config) {
  const char* bits_key = fields.Has("w_bit") ? "w_bit" : "bits";
  FT_ASSIGN_OR_RETURN(const int64_t bits, fields.OrDefault<int64_t>(bits_key, 4));
  if (bits != 4) return fields.Error(bits_key, "expects 4, got ", bits, ": the model is needed with AWQ of 4 bits");
  config.bits = {4};
  FT_RETURN_IF_ERROR(AddGroupSize(fields, fields.Has("q_group_size") ? "q_group_size" : "group_size", config));
  static constexpr absl::string_view kVersions[] = {"gemm"};
  FT_RETURN_IF_ERROR(CheckString(fields, "version", kVersions, "the model is needed in this layout"));
  static constexpr absl::string_view kBackends[] = {"autoawq"};
  return CheckString(fields, "backend", kBackends, "the model is needed in the layout of AutoAWQ");
}

// AutoRound stores the layout of GPTQ or of AWQ. Single layers may have another group size.
absl::Status ReadAutoRound(const JsonFields& fields, QuantizationConfig& config) {
  static constexpr absl::string_view kTypes[] = {"int"};
  FT_RETURN_IF_ERROR(CheckString(fields, "data_type", kTypes, "the model is needed with integers or in bf16"));
  static constexpr absl::string_view kPackings[] = {"auto_round:auto_gptq", "auto_gptq", "auto_round:auto_awq",
                                                    "auto_awq"};
  FT_RETURN_IF_ERROR(CheckString(fields, "packing_format", kPackings, "the model is needed in one of these layouts"));
  FT_ASSIGN_OR_RETURN(const auto packing, fields.OrDefault<std::string>("packing_format", "auto_gptq"));
  const bool is_awq = absl::EndsWith(absl::AsciiStrToLower(packing), "auto_awq");
  FT_RETURN_IF_ERROR(is_awq ? ReadAwq(fields, config) : ReadGptq(fields, config));
  FT_ASSIGN_OR_RETURN(const auto layers, fields.Object("extra_config"));
  if (!layers) return absl::OkStatus();
  for (const std::string& name : layers->Names()) {
    FT_ASSIGN_OR_RETURN(const auto layer, layers->Object(name));
    if (layer) FT_RETURN_IF_ERROR(AddGroupSize(*layer, "group_size", config));
  }
  return absl::OkStatus();
}

// hf_quant_config.json has the keys in an object of its own.
absl::Status ReadModelOpt(const JsonFields& fields) {
  FT_ASSIGN_OR_RETURN(const auto inner, fields.Object("quantization"));
  const JsonFields& keys = inner ? *inner : fields;
  FT_RETURN_IF_ERROR(keys.Required<std::string>("quant_algo").status());
  static constexpr absl::string_view kAlgorithms[] = {"fp8", "fp8_per_channel_per_token", "fp8_pb_wo"};
  return CheckString(keys, "quant_algo", kAlgorithms, "the model is needed in FP8 or in bf16");
}

absl::Status ReadFp8(const JsonFields& fields, QuantizationConfig& config) {
  static constexpr absl::string_view kFormats[] = {"e4m3", "float8_e4m3fn"};
  FT_RETURN_IF_ERROR(CheckString(fields, "fmt", kFormats, "the model is needed in E4M3 or in bf16"));
  return AddBlockSize(fields, "weight_block_size", config);
}

absl::Status CheckCompressedFormat(const JsonFields& fields) {
  static constexpr absl::string_view kFormats[] = {"pack-quantized",  "int-quantized",        "float-quantized",
                                                   "naive-quantized", "mxfp4-pack-quantized", "dense",
                                                   "mixed-precision"};
  return CheckString(fields, "format", kFormats, "the model is needed in one of these formats or in bf16");
}

absl::Status ReadWeights(const JsonFields& weights, QuantizationConfig& config) {
  FT_ASSIGN_OR_RETURN(const auto type, weights.OrDefault<std::string>("type", "int"));
  FT_ASSIGN_OR_RETURN(const int64_t bits, weights.OrDefault<int64_t>("num_bits", 8));
  if (type == "int") {
    if (bits < 1 || bits > 8) {
      return weights.Error("num_bits", "expects 1 to 8, got ", bits, ": the model is needed with so few bits");
    }
    FT_RETURN_IF_ERROR(AddOnce(weights, "num_bits", config.bits, static_cast<int>(bits)));
  } else if (type != "float" || (bits != 4 && bits != 8)) {
    return weights.Error("type", "expects int, or float of 8 or 4 bits, got ", weights.Text("type"), " of ", bits,
                         " bits: the model is needed in one of these types");
  }
  static constexpr absl::string_view kStrategies[] = {"tensor", "channel", "group", "block"};
  FT_RETURN_IF_ERROR(CheckString(weights, "strategy", kStrategies, "the model is needed with one of these strategies"));
  FT_RETURN_IF_ERROR(AddGroupSize(weights, "group_size", config));
  return AddBlockSize(weights, "block_structure", config);
}

// A rotation of activations would have to be computed at run time.
absl::Status RefuseTransforms(const JsonFields& fields) {
  FT_ASSIGN_OR_RETURN(const auto transforms, fields.Object("transform_config"));
  if (!transforms) return absl::OkStatus();
  FT_ASSIGN_OR_RETURN(const auto groups, transforms->Object("config_groups"));
  if (!groups || groups->Names().empty()) return absl::OkStatus();
  return transforms->Error("config_groups", "expects no transform, got ", absl::StrJoin(groups->Names(), ", "),
                           ": the model is needed without transforms at run time");
}

absl::Status ReadCompressedTensors(const JsonFields& fields, QuantizationConfig& config) {
  FT_RETURN_IF_ERROR(CheckCompressedFormat(fields));
  FT_ASSIGN_OR_RETURN(const auto sparsity, fields.Object("sparsity_config"));
  if (sparsity) {
    static constexpr absl::string_view kFormats[] = {"dense"};
    FT_RETURN_IF_ERROR(CheckString(*sparsity, "format", kFormats, "the model is needed without sparse storage"));
  }
  FT_RETURN_IF_ERROR(RefuseTransforms(fields));
  FT_ASSIGN_OR_RETURN(const auto groups, fields.Object("config_groups"));
  if (!groups) return absl::OkStatus();
  for (const std::string& name : groups->Names()) {
    FT_ASSIGN_OR_RETURN(const auto group, groups->Object(name));
    if (!group) continue;
    FT_RETURN_IF_ERROR(CheckCompressedFormat(*group));
    FT_ASSIGN_OR_RETURN(const auto weights, group->Object("weights"));
    if (weights) FT_RETURN_IF_ERROR(ReadWeights(*weights, config));
  }
  return absl::OkStatus();
}

absl::StatusOr<QuantizationConfig> ReadMethod(const JsonFields& fields, const std::string& default_method) {
  QuantizationConfig config = {.is_declared = true};
  FT_ASSIGN_OR_RETURN(const std::string method, fields.OrDefault<std::string>("quant_method", default_method));
  if (method == "gptq") {
    FT_RETURN_IF_ERROR(ReadGptq(fields, config));
  } else if (method == "awq") {
    FT_RETURN_IF_ERROR(ReadAwq(fields, config));
  } else if (method == "auto-round" || method == "intel/auto-round") {
    FT_RETURN_IF_ERROR(ReadAutoRound(fields, config));
  } else if (method == "modelopt") {
    FT_RETURN_IF_ERROR(ReadModelOpt(fields));
  } else if (method == "fp8" || method == "fbgemm_fp8") {
    FT_RETURN_IF_ERROR(ReadFp8(fields, config));
  } else if (method == "compressed-tensors") {
    FT_RETURN_IF_ERROR(ReadCompressedTensors(fields, config));
  } else if (method != "mxfp4") {
    return fields.Error("quant_method",
                        "expects compressed-tensors, gptq, awq, auto-round, fp8, fbgemm_fp8, modelopt or mxfp4, got ",
                        fields.Text("quant_method"), ": the model is needed in one of these formats or in bf16");
  }
  return config;
}

}  // namespace

absl::StatusOr<QuantizationConfig> ReadQuantizationConfig(const JsonFields& config) {
  FT_ASSIGN_OR_RETURN(const auto declared, config.Object("quantization_config"));
  if (declared) return ReadMethod(*declared, "");
  FT_ASSIGN_OR_RETURN(const auto old, config.Object("compression_config"));
  if (old) return ReadMethod(*old, "compressed-tensors");
  return QuantizationConfig();
}

absl::StatusOr<QuantizationConfig> LoadQuantizationFile(const std::string& directory) {
  for (const auto& [file, method] : {std::pair("quantize_config.json", "gptq"),
                                     {"quant_config.json", "awq"},
                                     {"hf_quant_config.json", "modelopt"}}) {
    const std::string path = absl::StrCat(directory, "/", file);
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) continue;
    FT_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path));
    FT_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Parse(text, path));
    return ReadMethod(fields, method);
  }
  return QuantizationConfig();
}

}  // namespace foretoken::quantization
