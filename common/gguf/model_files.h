// SPDX-License-Identifier: Apache-2.0
// The small files of a model, by their names in a Hugging Face checkpoint. A model is a directory that holds them, or a
// GGUF file, of whose header they are made.
//
//   FT_ASSIGN_OR_RETURN(const std::string text, ReadModelFile("models/llama", "config.json"));
//   FT_ASSIGN_OR_RETURN(const nlohmann::json config, ReadModelJson("llama.gguf", "config.json"));
//
// A GGUF file has config.json, generation_config.json, tokenizer.json and tokenizer_config.json; equal files give equal
// texts.
// Errors: NOT_FOUND if the model has no such file. Others as base::ReadFile, base::ReadJson and GgufModel::Open, and
// INVALID_ARGUMENT with the key that cannot be expressed.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace foretoken::gguf {

absl::StatusOr<std::string> ReadModelFile(const std::string& model, absl::string_view name);
absl::StatusOr<nlohmann::json> ReadModelJson(const std::string& model, absl::string_view name);

// The file's name in messages: "models/llama/config.json", or "llama.gguf as config.json".
std::string ModelFileName(const std::string& model, absl::string_view name);

}  // namespace foretoken::gguf
