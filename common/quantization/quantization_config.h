// SPDX-License-Identifier: Apache-2.0
// What a model's files declare about quantised matrices. The stored tensors say nearly everything about themselves;
// this is the rest, which no tensor says.
//
//   FT_ASSIGN_OR_RETURN(const QuantizationConfig quantization, ReadQuantizationConfig(fields_of_config_json));
//
// It reads the quant_method values compressed-tensors, gptq, awq, auto-round, fp8, fbgemm_fp8, modelopt and mxfp4.
// Quantised activations, which some files declare, are read over: weights are used as they are stored, and activations
// stay bf16. Errors: INVALID_ARGUMENT with the file, the key, the value, and what would be needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/json_fields.h"

namespace foretoken::quantization {

// Outputs and inputs of a matrix that share a scale.
struct BlockSize {
  int64_t outputs = 0;
  int64_t inputs = 0;

  friend bool operator==(const BlockSize&, const BlockSize&) = default;
};

// A file may declare several sizes for different layers. The shapes of the tensors choose among them.
struct QuantizationConfig {
  bool is_declared = false;
  std::vector<int> bits;             // of integers
  std::vector<int64_t> group_sizes;  // inputs that share a scale
  std::vector<BlockSize> block_sizes;
  bool is_gptq_v2 = false;              // GPTQ's zero points are stored as they are, and not less one
  bool has_transposed_experts = false;  // plain matrices of experts are [inputs, outputs], as in gpt-oss

  friend bool operator==(const QuantizationConfig&, const QuantizationConfig&) = default;
};

// Reads quantization_config of a config.json, or its old name compression_config.
absl::StatusOr<QuantizationConfig> ReadQuantizationConfig(const model::JsonFields& config);

// Reads the file beside config.json in which old GPTQ and AWQ checkpoints and those of ModelOpt declare themselves:
// quantize_config.json, quant_config.json or hf_quant_config.json. Without such a file nothing is declared.
absl::StatusOr<QuantizationConfig> LoadQuantizationFile(const std::string& directory);

}  // namespace foretoken::quantization
