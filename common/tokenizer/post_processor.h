// SPDX-License-Identifier: Apache-2.0
// The special tokens around every text: the "post_processor" of tokenizer.json, or tokenizer_config.json.
//
// Supported: TemplateProcessing (its template for a single text), ByteLevel (which only concerns offsets), and a
// Sequence of them. Others are refused by name.
// Errors: INVALID_ARGUMENT names the step, the field or the token.
// Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/json_value.h"
#include "common/tokenizer/vocabulary.h"

namespace foretoken::tokenizer {

struct Surroundings {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

// Nullopt if there is no template.
absl::StatusOr<std::optional<Surroundings>> SurroundingsFromPostProcessor(
    const std::optional<JsonValue>& post_processor, const Vocabulary& vocabulary);

// Reads add_bos_token and add_eos_token, with bos_token and eos_token, of tokenizer_config.json.
absl::StatusOr<Surroundings> SurroundingsFromConfig(const JsonValue& config, const Vocabulary& vocabulary);

}  // namespace foretoken::tokenizer
