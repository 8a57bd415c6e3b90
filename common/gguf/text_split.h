// SPDX-License-Identifier: Apache-2.0
// How a byte-level tokenizer of GGUF cuts a text: what tokenizer.ggml.pre names, in the form of tokenizer.json.
#pragma once

#include "absl/status/statusor.h"
#include "common/gguf/metadata.h"
#include "nlohmann/json.hpp"

namespace foretoken::gguf {

struct TextSplit {
  nlohmann::json normalizer;     // or null
  nlohmann::json pre_tokenizer;  // ends with ByteLevel
  bool ignores_merges = false;   // a word that is a token becomes that token at once
  bool adds_bos = false;         // unless the file says otherwise
};

// A file without a name has llama.cpp's default. Errors: INVALID_ARGUMENT with the file, the key, the expected and the
// given name.
absl::StatusOr<TextSplit> ReadTextSplit(const Metadata& metadata);

}  // namespace foretoken::gguf
