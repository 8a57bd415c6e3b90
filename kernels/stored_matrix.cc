// SPDX-License-Identifier: Apache-2.0
#include "kernels/stored_matrix.h"

namespace foretoken::kernels {

std::optional<IntegerGroups> CommonGroups(std::span<const StoredPart> parts) {
  std::optional<IntegerGroups> common;
  for (const StoredPart& part : parts) {
    const std::optional<IntegerGroups> groups = part.matrix->groups();
    if (!groups) return std::nullopt;
    if (!common) common = groups;
    if (groups->bits != common->bits || groups->group_size != common->group_size) return std::nullopt;
    if (groups->scale_dtype != common->scale_dtype) common->scale_dtype = DType::kF32;
    common->has_offsets |= groups->has_offsets;
  }
  return common;
}

}  // namespace foretoken::kernels
