// SPDX-License-Identifier: Apache-2.0
// The largest sizes that a configuration may have. The bytes of all weights of the largest model fit into 63 bits.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/json_fields.h"
#include "common/base/status_macros.h"

namespace foretoken::model {

inline constexpr int64_t kMaxWidth = int64_t{1} << 22;
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 20;
inline constexpr int64_t kMaxHeads = int64_t{1} << 12;
inline constexpr int64_t kMaxLayers = int64_t{1} << 12;
inline constexpr int64_t kMaxExperts = int64_t{1} << 12;
inline constexpr int64_t kMaxExpertsOfModel = int64_t{1} << 16;  // of all layers; each has names of its own
inline constexpr int64_t kMaxPositions = int64_t{1} << 30;

// A default of 0 means that the field is required.
inline absl::StatusOr<int64_t> ReadSize(const JsonFields& fields, const std::string& name, int64_t max,
                                        int64_t default_size = 0) {
  FT_ASSIGN_OR_RETURN(const int64_t size, default_size != 0 ? fields.OrDefault<int64_t>(name, default_size)
                                                            : fields.Required<int64_t>(name));
  if (size < 1 || size > max) return fields.Error(name, "expects an integer from 1 to ", max, ", got ", size);
  return size;
}

}  // namespace foretoken::model
