// SPDX-License-Identifier: Apache-2.0
#include "common/quantization/tensor_set.h"

#include <algorithm>

#include "absl/strings/str_join.h"

namespace foretoken::quantization {

using weights::StoredTensor;

absl::StatusOr<const StoredTensor*> TensorSet::Take(absl::string_view part, DTypes dtypes,
                                                    const std::vector<int64_t>& shape) {
  const StoredTensor* tensor = Find(part);
  const std::string expected = absl::StrCat(absl::StrJoin(dtypes, " or "), " [", absl::StrJoin(shape, ", "), "]");
  if (tensor == nullptr) {
    return absl::NotFoundError(absl::StrCat(checkpoint_.directory(), ": tensor ", Name(part), " ", expected,
                                            " is missing beside the layer's others"));
  }
  if (std::ranges::find(dtypes, tensor->dtype) == dtypes.end() || tensor->shape != shape) {
    return Error(part, "expected ", expected, ", got ", Describe(*tensor));
  }
  taken_.push_back({.name = Name(part), .tensor = tensor});
  return tensor;
}

absl::StatusOr<const StoredTensor*> TensorSet::TakeIfThere(absl::string_view part, DTypes dtypes,
                                                           const std::vector<int64_t>& shape) {
  if (Find(part) == nullptr) return nullptr;
  return Take(part, dtypes, shape);
}

std::string Describe(const StoredTensor& tensor) {
  return absl::StrCat(tensor.dtype, " [", absl::StrJoin(tensor.shape, ", "), "]");
}

}  // namespace foretoken::quantization
