// SPDX-License-Identifier: Apache-2.0
// Finds a weight in a checkpoint, in whatever form it is stored there.
//
//   FT_ASSIGN_OR_RETURN(FoundWeight q, FindWeight(checkpoint, "model.layers.0.self_attn.q_proj.weight",
//                                                 kernels::Shape(256, 256), config));
//
// The stored tensors decide, not the declaration: exclude lists of published files are often incomplete. For X.weight:
//   X.weight         F32, F16, BF16   plain floats, of gpt-oss's experts transposed (transposed.h)
//   X.weight         F8_E4M3          FP8 (fp8.h)
//   X.weight         I8               int-quantized (int_quantized.h)
//   X.weight         Q4_0, Q4_K, ...  a matrix of GGUF (gguf_matrix.h)
//   X.weight_packed  I32              pack-quantized (pack_quantized.h)
//   X.weight_packed  U8               MXFP4 (mxfp4.h)
//   X.qweight        I32              AWQ if the shape is AWQ's (awq.h), else GPTQ (gptq.h)
// The first of these that is there counts. Vectors are plain floats.
//
// Errors: INVALID_ARGUMENT or NOT_FOUND with the checkpoint, the tensor, the expected and the given value.
// Threads: any. What it returns refers to the checkpoint.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/quantization/found_weight.h"
#include "common/quantization/quantization_config.h"
#include "common/weights/checkpoint.h"

namespace foretoken::quantization {

absl::StatusOr<FoundWeight> FindWeight(const weights::Checkpoint& checkpoint, const std::string& name,
                                       const kernels::Shape& shape, const QuantizationConfig& config);

// Whether the checkpoint has the weight in any form.
bool HasWeight(const weights::Checkpoint& checkpoint, const std::string& name);

}  // namespace foretoken::quantization
