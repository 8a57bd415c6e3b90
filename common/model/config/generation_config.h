// SPDX-License-Identifier: Apache-2.0
// The defaults of a Hugging Face generation_config.json for the parameters that a request does not set. A directory may
// lack the file. Then the model gives no defaults.
//
//   FT_ASSIGN_OR_RETURN(const GenerationConfig defaults, LoadGenerationConfig("models/llama"));
//
// Errors: INVALID_ARGUMENT with the file, the field, the expected and the given value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken::model {

struct GenerationConfig {
  std::vector<int64_t> eos_token_ids;       // empty: config.json's ids apply
  std::optional<float> temperature;         // 0 where do_sample is false
  std::optional<int32_t> top_k;             // 0: off
  std::optional<float> top_p;               // in (0, 1]
  std::optional<float> min_p;               // in [0, 1]
  std::optional<float> repetition_penalty;  // above 0
};

// `source` names the text in messages.
absl::StatusOr<GenerationConfig> ParseGenerationConfig(absl::string_view text, absl::string_view source);

// Reads `directory`/generation_config.json, or the same of a GGUF file. If the file is absent, the configuration is
// empty.
absl::StatusOr<GenerationConfig> LoadGenerationConfig(const std::string& directory);

}  // namespace foretoken::model
