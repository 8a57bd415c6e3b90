// SPDX-License-Identifier: Apache-2.0
#include "common/quantization/input_groups.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/quantization/scales.h"

namespace foretoken::quantization {
namespace {

// A declared size that divides the inputs evenly is taken first, then one whose last group is shorter, then any even
// division.
std::optional<int64_t> ChooseSize(const InputGroups::Sizes& sizes, const std::vector<int64_t>& declared) {
  if (sizes.num_groups < 1 || sizes.num_groups > sizes.num_inputs) return std::nullopt;
  if (sizes.num_inputs % sizes.num_groups == 0) {
    const int64_t even = sizes.num_inputs / sizes.num_groups;
    const auto is_ragged = [&](int64_t size) {
      return size != even && (sizes.num_inputs + size - 1) / size == sizes.num_groups && size < sizes.num_inputs;
    };
    const bool is_declared = std::ranges::find(declared, even) != declared.end();
    const auto ragged = std::ranges::find_if(declared, is_ragged);
    return is_declared || ragged == declared.end() ? even : *ragged;
  }
  for (const int64_t size : declared) {
    if ((sizes.num_inputs + size - 1) / size == sizes.num_groups) return size;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<InputGroups> InputGroups::Make(TensorSet& tensors, absl::string_view index_part,
                                              absl::string_view scale_part, const Sizes& sizes,
                                              const QuantizationConfig& config) {
  InputGroups groups(sizes);
  const bool is_index = tensors.Find(index_part) != nullptr;
  const std::optional<int64_t> size = ChooseSize(sizes, config.group_sizes);
  if (!size && !(is_index && sizes.num_groups >= 1)) {
    return tensors.Error(scale_part, "expected groups that divide ", sizes.num_inputs,
                         " inputs by a declared group_size [", absl::StrJoin(config.group_sizes, ", "), "], got ",
                         sizes.num_groups, " groups");
  }
  if (size) groups.group_size_ = *size;
  if (is_index) FT_RETURN_IF_ERROR(groups.ReadIndex(tensors, index_part));
  return groups;
}

bool InputGroups::are_all_equal() const {
  if (group_size_ * sizes_.num_groups != sizes_.num_inputs) return false;
  for (size_t i = 0; i < order_.size(); ++i) {
    if (index_[static_cast<size_t>(order_[i])] != static_cast<int64_t>(i) / group_size_) return false;
  }
  return true;
}

absl::Status InputGroups::ReadIndex(TensorSet& tensors, absl::string_view part) {
  FT_ASSIGN_OR_RETURN(const weights::StoredTensor* tensor, tensors.Take(part, {"I32"}, {sizes_.num_inputs}));
  std::vector<int32_t> index(static_cast<size_t>(sizes_.num_inputs));
  bool is_trivial = true, is_unset = true;
  for (int64_t i = 0; i < sizes_.num_inputs; ++i) {
    index[i] = ElementAt<int32_t>(*tensor, i);
    is_trivial = is_trivial && index[i] == i / group_size_;
    is_unset = is_unset && index[i] == -1;
  }
  // A writer that reserved the tensor and reordered nothing leaves -1 everywhere.
  const bool all_have_inputs = (sizes_.num_groups - 1) * group_size_ < sizes_.num_inputs;
  if (is_trivial || (is_unset && all_have_inputs)) return absl::OkStatus();
  for (int64_t i = 0; i < sizes_.num_inputs; ++i) {
    if (index[i] < 0 || index[i] >= sizes_.num_groups) {
      return tensors.Error(part, "expected groups from 0 to ", sizes_.num_groups - 1, ", got ", index[i], " for input ",
                           i);
    }
  }
  index_ = std::move(index);
  order_.resize(index_.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::stable_sort(order_, {}, [&](int32_t input) { return index_[static_cast<size_t>(input)]; });
  return absl::OkStatus();
}

}  // namespace foretoken::quantization
