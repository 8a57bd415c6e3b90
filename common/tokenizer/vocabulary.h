// SPDX-License-Identifier: Apache-2.0
// The tokens of a tokenizer by id, and a fingerprint that shows two services if their ids mean the same tokens.
//
//   const Vocabulary& vocabulary = tokenizer.vocabulary();
//   if (VocabularyFingerprint(mine) != theirs) { ... FirstDifferingId(TokenDigests(mine), their_digests) ... }
//
// Ids need not be dense: a file may leave some unused.
// Threads: immutable after construction.
// The fingerprint is a SHA-256 over (id, token bytes, special flag), not over padded widths or file bytes. Per used id,
// ascending: the id, the number of bytes, the bytes, and 1 if special, else 0; integers as 8 little-endian bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/base/sha256.h"

namespace foretoken::tokenizer {

struct Token {
  std::string spelling;  // as in tokenizer.json: "Ġthe", "▁the", "<0x0A>", "<|im_end|>"
  std::string bytes;     // its text, not at a text's start: " the", " the", "\n", "<|im_end|>"
  bool special = false;
};

class Vocabulary {
 public:
  // tokens[id]; no two may have the same spelling.
  explicit Vocabulary(std::vector<std::optional<Token>> tokens);
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // The largest id plus one. A model's vocab_size may be larger (padding) or smaller (added tokens without a row).
  size_t num_ids() const { return tokens_.size(); }
  // Null if the id is unused, negative or too large.
  const Token* Find(int32_t id) const;
  std::optional<int32_t> FindId(absl::string_view spelling) const;
  bool IsSpecial(int32_t id) const;

 private:
  std::vector<std::optional<Token>> tokens_;
  absl::flat_hash_map<absl::string_view, int32_t> ids_;  // keys point into tokens_
};

base::Sha256Digest VocabularyFingerprint(const Vocabulary& vocabulary);

// For every id, 8 bytes of the SHA-256 of its part of the fingerprint (an empty part, for an unused id).
std::vector<uint64_t> TokenDigests(const Vocabulary& vocabulary);
// The smallest id whose token differs, or that only one of the two uses.
std::optional<int32_t> FirstDifferingId(std::span<const uint64_t> a, std::span<const uint64_t> b);

}  // namespace foretoken::tokenizer
