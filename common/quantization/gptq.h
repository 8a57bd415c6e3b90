// SPDX-License-Identifier: Apache-2.0
// GPTQ with 4 or 8 bits: codes packed along the inputs, and a column for each output.
//   X.qweight [K bits / 32, N] I32: the first input lies in the lowest bits
//   X.qzeros  [groups, N bits / 32] I32: zero points packed along the outputs, less one unless the file is gptq_v2
//   X.scales  [groups, N] F32, F16 or BF16
//   X.g_idx   [K] I32, the group of each input; absent: consecutive groups
// Source: AutoGPTQ and GPTQModel, "checkpoint_format".
#pragma once

#include "absl/status/statusor.h"
#include "common/quantization/found_weight.h"
#include "common/quantization/quantization_config.h"

namespace foretoken::quantization {

// Errors: as TensorSet.
absl::StatusOr<FoundWeight> OpenGptq(TensorSet tensors, const kernels::Shape& shape, const QuantizationConfig& config);

}  // namespace foretoken::quantization
