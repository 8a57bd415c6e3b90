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

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/quantization/found_weight.h"
#include "common/quantization/quantization_config.h"
#include "common/weights/checkpoint.h"

namespace foretoken::quantization {

absl::StatusOr<FoundWeight> FindWeight(const weights::Checkpoint& checkpoint, const std::string& name,
                                       const kernels::Shape& shape, const QuantizationConfig& config);

// The weights of a checkpoint, each opened once, however many ask for it: to open a matrix reads its zero points and
// the groups of its inputs.
//
//   const OpenedWeights weights(checkpoint);
//   FT_ASSIGN_OR_RETURN(const FoundWeight* q, weights.Find(name, shape, config));
//
// A function that asks for weights takes one of these. A checkpoint becomes one for a single call.
// Errors: as FindWeight. Threads: any. What Find returns lives as long as this object.
class OpenedWeights {
 public:
  explicit OpenedWeights(std::shared_ptr<const weights::Checkpoint> checkpoint) : checkpoint_(std::move(checkpoint)) {}
  // The checkpoint outlives it.
  OpenedWeights(const weights::Checkpoint& checkpoint)  // NOLINT(google-explicit-constructor)
      : checkpoint_(std::shared_ptr<void>(), &checkpoint) {}

  const std::shared_ptr<const weights::Checkpoint>& checkpoint() const { return checkpoint_; }
  // The declaration is the same in every call.
  absl::StatusOr<const FoundWeight*> Find(const std::string& name, const kernels::Shape& shape,
                                          const QuantizationConfig& config) const;

 private:
  std::shared_ptr<const weights::Checkpoint> checkpoint_;
  mutable absl::Mutex mutex_;
  mutable std::map<std::string, FoundWeight> found_ ABSL_GUARDED_BY(mutex_);  // by name and shape
};

// Whether the checkpoint has the weight in any form.
bool HasWeight(const weights::Checkpoint& checkpoint, const std::string& name);

}  // namespace foretoken::quantization
