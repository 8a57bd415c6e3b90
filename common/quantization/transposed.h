// SPDX-License-Identifier: Apache-2.0
// A matrix of plain floats that is stored [inputs, outputs], as gpt-oss has its experts.
//   X.weight  [K, N] F32, F16 or BF16
#pragma once

#include "absl/status/statusor.h"
#include "common/quantization/found_weight.h"

namespace foretoken::quantization {

// `shape` is [N, K].
absl::StatusOr<FoundWeight> OpenTransposed(TensorSet tensors, const kernels::Shape& shape);

}  // namespace foretoken::quantization
