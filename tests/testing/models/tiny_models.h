// SPDX-License-Identifier: Apache-2.0
// The directory names of the tiny random models in tests/cases/models: all of them, and one for each architecture.
#pragma once

namespace foretoken::testing {

// New ones come last, because digests go over them in this order (tests/cases/numerics.txt).
inline constexpr const char* kTinyModels[] = {
    "llama",
    "llama-llama3-tied",
    "llama-linear-bias",
    "llama-yarn",
    "mistral-window",
    "qwen2",
    "qwen2-mixed-window-sharded",
    "qwen3",
    "gemma2",
    "gemma2-untied",
    "gemma3",
    "gemma3-linear",
    "granite",
    "granite-bias",
    "phi3",
    "phi3-longrope",
    "smollm3",
    "smollm3-listed",
    "mixtral",
    "mixtral-window",
    "qwen3-moe",
    "qwen3-moe-mixed",
    "glm4-moe",
    "glm4-moe-plain",
    "gpt-oss",
    "gpt-oss-plain",
    "olmo2",
    "olmo2-bias",
    "mistral-full",
    "qwen3-tied",
};

// Of these, one for each architecture. Two ranks can share any of them.
inline constexpr const char* kFamilyModels[] = {
    "llama",   "mistral-window", "qwen2", "qwen3",   "gemma2",    "gemma3",   "phi3",
    "granite", "smollm3",        "olmo2", "mixtral", "qwen3-moe", "glm4-moe", "gpt-oss",
};

}  // namespace foretoken::testing
