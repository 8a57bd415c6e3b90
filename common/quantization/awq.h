// SPDX-License-Identifier: Apache-2.0
// AWQ in the layout GEMM: 4-bit codes packed along the outputs, and a column for each output.
//   X.qweight [K, N / 8] I32: a word's nibbles hold its outputs in the order 0, 2, 4, 6, 1, 3, 5, 7
//   X.qzeros  [groups, N / 8] I32, in the same order
//   X.scales  [groups, N] F32, F16 or BF16
// Source: AutoAWQ, "WQLinear_GEMM".
#pragma once

#include "absl/status/statusor.h"
#include "common/quantization/found_weight.h"
#include "common/quantization/quantization_config.h"

namespace foretoken::quantization {

// Whether X.qweight has AWQ's shape for this matrix. No shape is both AWQ's and GPTQ's.
bool IsAwq(const weights::StoredTensor& qweight, const kernels::Shape& shape);

// Errors: as TensorSet.
absl::StatusOr<FoundWeight> OpenAwq(TensorSet tensors, const kernels::Shape& shape, const QuantizationConfig& config);

}  // namespace foretoken::quantization
