// SPDX-License-Identifier: Apache-2.0
// The tokens of a GGUF file: spellings, kinds, and the ids with a role.
//
//   FT_ASSIGN_OR_RETURN(const std::vector<ListedToken> tokens, ReadTokens(metadata));
//   FT_ASSIGN_OR_RETURN(const SpecialIds ids, ReadSpecialIds(metadata));
//
// Errors: INVALID_ARGUMENT with the file, the key, the expected and the given value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/gguf/metadata.h"

namespace foretoken::gguf {

// As numbered in the file.
enum class TokenKind : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,  // padding of the ids: no text has it
  kByte = 6,
};

struct ListedToken {
  std::string spelling;
  TokenKind kind = TokenKind::kNormal;
};

// By id. A file without kinds has normal tokens only. Spellings of used tokens are unique.
absl::StatusOr<std::vector<ListedToken>> ReadTokens(const Metadata& metadata);

// How the file makes tokens of text.
enum class TokenizerModel {
  kByteLevel,      // "gpt2": byte-level BPE with merges
  kSentencePiece,  // "llama": SentencePiece's BPE with scores
};
absl::StatusOr<TokenizerModel> ReadTokenizerModel(const Metadata& metadata);

// Unset: the file names none. SentencePiece files have the usual ids if they name none.
struct SpecialIds {
  std::optional<int64_t> bos;
  std::optional<int64_t> eos;
  std::optional<int64_t> eot;  // end of a turn
  std::optional<int64_t> eom;  // end of a message
  std::optional<int64_t> unknown;
  std::optional<int64_t> separator;
  std::optional<int64_t> padding;
};
absl::StatusOr<SpecialIds> ReadSpecialIds(const Metadata& metadata);

}  // namespace foretoken::gguf
