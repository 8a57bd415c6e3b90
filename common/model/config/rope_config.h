// SPDX-License-Identifier: Apache-2.0
// Reads the rotary settings of a config.json, in both spellings: `rope_theta` with `rope_scaling {type | rope_type,
// ...}`, and `rope_parameters {rope_type, rope_theta, ...}` (transformers >= 5). The latter may be nested per layer
// type; they differ only in families whose layers with a window have a rotation of their own. Precedence and defaults
// are those of transformers 5.
//
// Errors: INVALID_ARGUMENT with the file, the field, the expected and the given value. Types other than default,
// linear, llama3, yarn and, in families that rotate a part of a head, longrope are refused by name: most depend on the
// current length, which row invariance forbids. One more type is our own, for what GGUF files say: "divisors", a list
// with a number for each rotary pair of a head.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/base/json_fields.h"
#include "common/model/config/families.h"

namespace foretoken::model {

// Sets the fields about rotation, and the longest context. YaRN extends the original length by its factor, and
// `max_position_embeddings` does not bound it: a configuration that enables YaRN keeps the trained model's value in
// that field. With other scalings the field itself is the bound, because it already has the extended length. Both rules
// are as in vLLM. `config` has its sizes; `most_positions` is the largest length that a configuration may ask for.
absl::Status ReadRotation(const JsonFields& fields, const Family& family, int64_t most_positions, ModelConfig& config);

}  // namespace foretoken::model
