// SPDX-License-Identifier: Apache-2.0
// The tensors of one quantised layer: "X.weight_packed", "X.weight_scale" and so on, found by their last part, and
// checked before use.
//
//   TensorSet tensors(checkpoint, "model.layers.0.mlp.up_proj");
//   FT_ASSIGN_OR_RETURN(const StoredTensor* packed, tensors.Take("weight_packed", {"I32"}, {outputs, num_words}));
//
// Errors: INVALID_ARGUMENT or NOT_FOUND with the checkpoint, the tensor, the expected and the given value.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/weights/checkpoint.h"

namespace foretoken::quantization {

struct NamedTensor {
  std::string name;
  const weights::StoredTensor* tensor = nullptr;
};

class TensorSet {
 public:
  // The checkpoint must outlive the tensors, not the set.
  TensorSet(const weights::Checkpoint& checkpoint, std::string layer)
      : checkpoint_(checkpoint), layer_(std::move(layer)) {}

  using DTypes = std::initializer_list<absl::string_view>;

  // Null: there is none.
  const weights::StoredTensor* Find(absl::string_view part) const { return checkpoint_.FindStored(Name(part)); }
  // The tensor, which must have one of these dtypes and this shape. Remembers it as taken.
  absl::StatusOr<const weights::StoredTensor*> Take(absl::string_view part, DTypes dtypes,
                                                    const std::vector<int64_t>& shape);
  // The same for a tensor that may be absent: null.
  absl::StatusOr<const weights::StoredTensor*> TakeIfThere(absl::string_view part, DTypes dtypes,
                                                           const std::vector<int64_t>& shape);

  template <typename... Parts>
  absl::Status Error(absl::string_view part, const Parts&... problem) const {
    return absl::InvalidArgumentError(absl::StrCat(checkpoint_.directory(), ": tensor ", Name(part), ": ", problem...));
  }

  const std::vector<NamedTensor>& taken() const { return taken_; }

 private:
  std::string Name(absl::string_view part) const { return absl::StrCat(layer_, ".", part); }

  const weights::Checkpoint& checkpoint_;
  std::string layer_;
  std::vector<NamedTensor> taken_;
};

// "I32 [16, 4]"
std::string Describe(const weights::StoredTensor& tensor);

}  // namespace foretoken::quantization
