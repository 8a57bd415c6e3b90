// SPDX-License-Identifier: Apache-2.0
// The rotary settings of a config.json, in both spellings: `rope_theta` with `rope_scaling {type | rope_type, ...}`,
// and `rope_parameters {rope_type, rope_theta, ...}` (transformers >= 5), which may be nested per layer type if all are
// equal. Precedence and defaults are those of transformers 5.
//
// Errors: INVALID_ARGUMENT with file, field, expected and got. Types that are not default, linear, llama3 or yarn are
// refused by name: most depend on the current length, which row invariance forbids.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/model/json_fields.h"
#include "common/model/rope.h"

namespace foretoken::model {

absl::StatusOr<RopeConfig> ReadRopeConfig(const JsonFields& config, int64_t max_position_embeddings);

}  // namespace foretoken::model
