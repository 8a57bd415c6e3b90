// SPDX-License-Identifier: Apache-2.0
// compressed-tensors' int-quantized: one signed byte per weight. W8A8 files have it, too.
//   X.weight            [N, K] I8
//   X.weight_scale      [N, groups], [N] or, for the whole matrix, [1] or a scalar; F32, F16 or BF16
//   X.weight_zero_point of the same shape, I8; absent: 0
// Source: compressed-tensors, compressors "naive_quantized".
#pragma once

#include "absl/status/statusor.h"
#include "common/quantization/found_weight.h"
#include "common/quantization/quantization_config.h"

namespace foretoken::quantization {

// Errors: as TensorSet.
absl::StatusOr<FoundWeight> OpenIntQuantized(TensorSet tensors, const kernels::Shape& shape,
                                             const QuantizationConfig& config);

}  // namespace foretoken::quantization
