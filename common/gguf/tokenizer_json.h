// SPDX-License-Identifier: Apache-2.0
// The tokenizer.json and tokenizer_config.json that a Hugging Face checkpoint of a GGUF model would have, so that one
// tokenizer reads both forms.
//
// GGUF keeps less than Hugging Face's files, so some of them are guessed. Added tokens are searched for in the text as
// it is, and white space beside them stays. Converters mark some tokens as control tokens by their look, and then they
// are special here.
// Errors: INVALID_ARGUMENT with the file, the key, the expected and the given value.
// Source: ggml-org/ggml, docs/gguf.md; llama.cpp's converter for what it writes of which tokenizer.
#pragma once

#include "absl/status/statusor.h"
#include "common/gguf/metadata.h"
#include "nlohmann/json.hpp"

namespace foretoken::gguf {

absl::StatusOr<nlohmann::json> TokenizerJson(const Metadata& metadata);

// The special tokens by name, and the chat templates.
absl::StatusOr<nlohmann::json> TokenizerConfigJson(const Metadata& metadata);

}  // namespace foretoken::gguf
