// SPDX-License-Identifier: Apache-2.0
// The directory names of the tiny random models in tests/cases/models, one for each architecture and feature.
#pragma once

namespace foretoken::testing {

inline constexpr const char* kTinyModels[] = {
    "llama",
    "llama-llama3-tied",
    "llama-linear-bias",
    "llama-yarn",
    "mistral-window",
    "qwen2",
    "qwen2-mixed-window-sharded",
    "qwen3",
};

}  // namespace foretoken::testing
