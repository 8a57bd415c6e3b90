// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint with which a gateway makes the same tokens as the server, as one zip archive:
// tokenizer.json and, where they are there, tokenizer_config.json, config.json, generation_config.json,
// special_tokens_map.json, and chat templates (*.jinja). Of a GGUF file they are made from its header. Equal files give
// equal bytes.
//
//   FT_ASSIGN_OR_RETURN(const TokenizerArchive archive, MakeTokenizerArchive("models/llama"));
//
// Errors: those of base::ReadFile; INVALID_ARGUMENT if the files have more than kMaxArchivedBytes.
// Time: about 10 ms per MiB.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace foretoken::verifier {

inline constexpr size_t kMaxArchivedBytes = size_t{128} << 20;

struct TokenizerArchive {
  std::string bytes;
  std::string sha256;  // hex
};

absl::StatusOr<TokenizerArchive> MakeTokenizerArchive(const std::string& directory);

}  // namespace foretoken::verifier
