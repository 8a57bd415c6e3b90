// SPDX-License-Identifier: Apache-2.0
// compressed-tensors' mxfp4-pack-quantized: E2M1 codes, and a power of two for every 32 inputs.
//   X.weight_packed [N, K / 2] U8: the lower half of a byte is the first code
//   X.weight_scale  [N, K / 32] U8 or F8_E8M0: 2^(byte - 127)
// Source: "OCP Microscaling Formats (MX) Specification"; compressed-tensors, "mxfp4".
#pragma once

#include "absl/status/statusor.h"
#include "common/quantization/found_weight.h"

namespace foretoken::quantization {

// Errors: as TensorSet.
absl::StatusOr<FoundWeight> OpenMxfp4(TensorSet tensors, const kernels::Shape& shape);

}  // namespace foretoken::quantization
