// SPDX-License-Identifier: Apache-2.0
// compressed-tensors' pack-quantized: codes of 1 to 8 bits, each row one string of bits in 32-bit words.
//   X.weight_packed     [N, ceil(K bits / 32)] I32
//   X.weight_scale      [N, groups] F32, F16 or BF16
//   X.weight_zero_point [ceil(N bits / 32), groups] I32, packed along the outputs; absent: 2^(bits - 1)
//   X.weight_g_idx      [K] I32, the group of each input; absent: consecutive groups
//   X.weight_shape      [2] I64: N, K
// Source: compressed-tensors, compressors "pack_quantized".
#pragma once

#include "absl/status/statusor.h"
#include "common/quantization/found_weight.h"
#include "common/quantization/quantization_config.h"

namespace foretoken::quantization {

// Errors: as TensorSet.
absl::StatusOr<FoundWeight> OpenPackQuantized(TensorSet tensors, const kernels::Shape& shape,
                                              const QuantizationConfig& config);

}  // namespace foretoken::quantization
