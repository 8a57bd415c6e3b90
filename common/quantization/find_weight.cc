// SPDX-License-Identifier: Apache-2.0
#include "common/quantization/find_weight.h"

#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/quantization/awq.h"
#include "common/quantization/fp8.h"
#include "common/quantization/gguf_matrix.h"
#include "common/quantization/gptq.h"
#include "common/quantization/int_quantized.h"
#include "common/quantization/mxfp4.h"
#include "common/quantization/pack_quantized.h"
#include "common/quantization/transposed.h"

namespace foretoken::quantization {
namespace {

using weights::Checkpoint;
using weights::StoredTensor;

constexpr absl::string_view kEnding = ".weight";

absl::StatusOr<FoundWeight> FindPlain(const Checkpoint& checkpoint, const std::string& name,
                                      const kernels::Shape& shape) {
  FT_ASSIGN_OR_RETURN(const kernels::ConstTensorView floats, checkpoint.Find(name, shape));
  return FoundWeight{.floats = floats, .tensors = {{.name = name, .tensor = checkpoint.FindStored(name)}}};
}

}  // namespace

absl::StatusOr<FoundWeight> FindWeight(const Checkpoint& checkpoint, const std::string& name,
                                       const kernels::Shape& shape, const QuantizationConfig& config) {
  if (shape.rank != 2 || !absl::EndsWith(name, kEnding)) return FindPlain(checkpoint, name, shape);
  TensorSet tensors(checkpoint, std::string(absl::StripSuffix(name, kEnding)));
  if (const StoredTensor* weight = tensors.Find("weight")) {
    if (weight->dtype == "F8_E4M3") return OpenFp8(std::move(tensors), shape, config);
    if (IsGguf(*weight)) return OpenGguf(std::move(tensors), shape);
    if (weight->dtype == "I8") return OpenIntQuantized(std::move(tensors), shape, config);
    if (config.has_transposed_experts && absl::StrContains(name, ".experts.")) {
      return OpenTransposed(std::move(tensors), shape);
    }
    return FindPlain(checkpoint, name, shape);
  }
  if (const StoredTensor* packed = tensors.Find("weight_packed")) {
    if (packed->dtype == "U8") return OpenMxfp4(std::move(tensors), shape);
    return OpenPackQuantized(std::move(tensors), shape, config);
  }
  if (const StoredTensor* qweight = tensors.Find("qweight")) {
    if (IsAwq(*qweight, shape)) return OpenAwq(std::move(tensors), shape, config);
    return OpenGptq(std::move(tensors), shape, config);
  }
  return FindPlain(checkpoint, name, shape);
}

absl::StatusOr<const FoundWeight*> OpenedWeights::Find(const std::string& name, const kernels::Shape& shape,
                                                       const QuantizationConfig& config) const {
  const auto dims = std::span(shape.dims).first(static_cast<size_t>(shape.rank));
  std::string key = absl::StrCat(name, " ", absl::StrJoin(dims, " "));
  absl::MutexLock lock(&mutex_);
  const auto known = found_.find(key);
  if (known != found_.end()) return &known->second;
  FT_ASSIGN_OR_RETURN(FoundWeight found, FindWeight(*checkpoint_, name, shape, config));
  return &found_.emplace(std::move(key), std::move(found)).first->second;
}

bool HasWeight(const Checkpoint& checkpoint, const std::string& name) {
  if (checkpoint.Contains(name)) return true;
  const std::string layer(absl::StripSuffix(name, kEnding));
  return layer != name && (checkpoint.Contains(layer + ".weight_packed") || checkpoint.Contains(layer + ".qweight"));
}

}  // namespace foretoken::quantization
