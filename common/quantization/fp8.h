// SPDX-License-Identifier: Apache-2.0
// FP8: E4M3 codes, multiplied by scales per tensor, per output or per block.
//   X.weight           [N, K] F8_E4M3
//   X.weight_scale     for the tensor [], [1] or [1, 1], per output [N] or [N, 1], or per block
//                      [ceil(N / block outputs), ceil(K / block inputs)]; F32, F16, BF16 or F8_E8M0
//   X.weight_scale_inv the same under another name: it, too, multiplies
// Source: compressed-tensors, "float-quantized"; DeepSeek-V3, "weight_block_size".
#pragma once

#include "absl/status/statusor.h"
#include "common/quantization/found_weight.h"
#include "common/quantization/quantization_config.h"

namespace foretoken::quantization {

// Errors: as TensorSet.
absl::StatusOr<FoundWeight> OpenFp8(TensorSet tensors, const kernels::Shape& shape, const QuantizationConfig& config);

}  // namespace foretoken::quantization
