// SPDX-License-Identifier: Apache-2.0
// What a config.json says about experts: how many, how wide, how a token's are chosen, and in which layers.
// Errors: INVALID_ARGUMENT with the file, the field, the expected and the given value.
#pragma once

#include "absl/status/status.h"
#include "common/base/json_fields.h"
#include "common/model/config/config.h"
#include "common/model/config/families.h"

namespace foretoken::model {

// The sizes of `config` have been read.
absl::Status ReadExperts(const JsonFields& fields, const Family& family, ModelConfig& config);

}  // namespace foretoken::model
