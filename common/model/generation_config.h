// SPDX-License-Identifier: Apache-2.0
// What a Hugging Face generation_config.json recommends for a request that says nothing itself. Most directories have
// one; none means no recommendation.
//
//   FT_ASSIGN_OR_RETURN(const GenerationConfig defaults, LoadGenerationConfig("models/llama"));
//
// Errors: INVALID_ARGUMENT with file, field, expected and got.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken::model {

struct GenerationConfig {
  std::vector<int64_t> eos_token_ids;       // empty: those of config.json hold
  std::optional<float> temperature;         // 0 where do_sample is false
  std::optional<int32_t> top_k;             // 0: off
  std::optional<float> top_p;               // in (0, 1]
  std::optional<float> min_p;               // in [0, 1]
  std::optional<float> repetition_penalty;  // above 0
};

// `source` names the text in messages.
absl::StatusOr<GenerationConfig> ParseGenerationConfig(absl::string_view text, absl::string_view source);

// Reads `directory`/generation_config.json. An absent file is an empty configuration.
absl::StatusOr<GenerationConfig> LoadGenerationConfig(const std::string& directory);

}  // namespace foretoken::model
