// SPDX-License-Identifier: Apache-2.0
// The config.json and generation_config.json that a Hugging Face checkpoint of a GGUF model would have. So one reader
// checks the values of both forms.
//
// It reads the architectures of architectures.h. Keys that would change the model's function and have no counterpart
// are refused by name, and so are tensors that the model would not read.
// Errors: INVALID_ARGUMENT with the file, the key or tensor, the expected and the given value.
// Source: ggml-org/ggml, docs/gguf.md; llama.cpp's converter for what it writes of which field.
#pragma once

#include "absl/status/statusor.h"
#include "common/gguf/gguf_model.h"
#include "nlohmann/json.hpp"

namespace foretoken::gguf {

absl::StatusOr<nlohmann::json> ConfigJson(const GgufModel& model);

// The ends of a text, and defaults of sampling where the file has them.
absl::StatusOr<nlohmann::json> GenerationConfigJson(const GgufModel& model);

}  // namespace foretoken::gguf
