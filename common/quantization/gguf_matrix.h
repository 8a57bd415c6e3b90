// SPDX-License-Identifier: Apache-2.0
// A matrix of a GGUF file: blocks of quantised values (gguf_blocks.h), or floats whose rows are interleaved.
//   X.weight [N, K], of a type of blocks, or F32, F16 or BF16
//
// Groups of 32 inputs stay integers where a backend keeps them. The offset of a group of 4 bits with a minimum is
// 8 * scale + minimum, rounded once to f32.
#pragma once

#include "absl/status/statusor.h"
#include "common/quantization/found_weight.h"

namespace foretoken::quantization {

// Whether OpenGguf, and no other reader, reads the tensor.
bool IsGguf(const weights::StoredTensor& tensor);

// Errors: as TensorSet.
absl::StatusOr<FoundWeight> OpenGguf(TensorSet tensors, const kernels::Shape& shape);

}  // namespace foretoken::quantization
