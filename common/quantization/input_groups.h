// SPDX-License-Identifier: Apache-2.0
// How the inputs of a matrix are divided into groups that share a scale.
//
//   FT_ASSIGN_OR_RETURN(const InputGroups groups, InputGroups::Make(tensors, "weight_g_idx", sizes, config));
//   groups.group_of(input)
//
// Errors: INVALID_ARGUMENT with the tensor, the expected and the given value.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/quantization/quantization_config.h"
#include "common/quantization/tensor_set.h"

namespace foretoken::quantization {

class InputGroups {
 public:
  struct Sizes {
    int64_t num_inputs = 0;
    int64_t num_groups = 0;
  };
  // `index_part` is the tensor that gives each input its group. If there is no such tensor, groups are consecutive, and
  // the last one may be shorter. `scale_part` is for messages.
  static absl::StatusOr<InputGroups> Make(TensorSet& tensors, absl::string_view index_part,
                                          absl::string_view scale_part, const Sizes& sizes,
                                          const QuantizationConfig& config);
  static InputGroups One(int64_t num_inputs) { return InputGroups({.num_inputs = num_inputs, .num_groups = 1}); }

  int64_t num_groups() const { return sizes_.num_groups; }
  int64_t group_of(int64_t input) const { return index_.empty() ? input / group_size_ : index_[input]; }
  // Groups are consecutive, and `size` inputs long.
  bool is_consecutive() const { return index_.empty(); }
  int64_t group_size() const { return group_size_; }
  // All groups have group_size() inputs.
  bool are_all_equal() const;
  // The inputs group after group, in their own order within each; empty if groups are consecutive.
  std::span<const int32_t> order() const { return order_; }

 private:
  explicit InputGroups(const Sizes& sizes) : sizes_(sizes), group_size_(sizes.num_inputs) {}
  absl::Status ReadIndex(TensorSet& tensors, absl::string_view part);

  Sizes sizes_;
  int64_t group_size_ = 0;
  std::vector<int32_t> index_;  // [num_inputs]; empty: consecutive groups
  std::vector<int32_t> order_;  // the same
};

}  // namespace foretoken::quantization
