// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one word: the "model" of tokenizer.json.
//
// A word starts as one symbol per character (or per byte, for byte-level files). Then one pair of neighbours after
// another becomes one symbol: the pair that comes first in the file's merges and, if it occurs more than once, the
// leftmost. This ends when no pair is in the merges. A character without a token becomes its bytes ("<0x0A>",
// byte_fallback), or the unknown token, or nothing.
// Time: O(n log n) in the word's length: candidates are in a heap, symbols in a doubly linked list.
// Errors: FromJson INVALID_ARGUMENT naming the field: dropout, prefixes and suffixes, merges of tokens that are not in
// the vocabulary.
// Threads: immutable.
// Source: R. Sennrich et al., arXiv 1508.07909; the model BPE of Hugging Face tokenizers for everything beside the
// merges.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_value.h"
#include "common/tokenizer/token_ids.h"

namespace foretoken::tokenizer {

class Bpe {
 public:
  // OK if FromJson can read this BPE model.
  static absl::Status CheckSupported(const JsonValue& model);
  // `ids` is the file's vocabulary, read by TokenIdsFromObject. Merges into reserved tokens do not count.
  static absl::StatusOr<Bpe> FromJson(const JsonValue& model, const TokenIds& ids, const ReservedIds& reserved,
                                      bool is_byte_level);

  // Adds the word's tokens. A byte-level word may be any bytes; another word must be well-formed UTF-8.
  void Encode(absl::string_view word, std::vector<int32_t>& out) const;

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;  // of the merged token
  };
  struct Symbol {
    int32_t id;
    int32_t previous;  // indices; -1 at the ends
    int32_t next;
  };
  struct Candidate;

  absl::Status ReadMerges(const JsonValue& merges, const TokenIds& ids, const ReservedIds& reserved);
  absl::Status ReadUnknown(const JsonValue& model, const TokenIds& ids);
  const Merge* FindMerge(int32_t left, int32_t right) const;
  void AppendSymbols(absl::string_view word, std::vector<int32_t>& symbols) const;
  void MergeAll(std::vector<int32_t>& symbols) const;

  absl::flat_hash_map<std::string, int32_t> ids_;  // keyed by the contents of a word: bytes for byte-level files
  absl::flat_hash_map<uint64_t, Merge> merges_;    // keyed by (left << 32 | right)
  std::array<std::optional<int32_t>, 256> byte_ids_;
  std::optional<int32_t> unknown_id_;
  bool is_byte_level_ = false;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;  // a word that is a token becomes that token at once
};

}  // namespace foretoken::tokenizer
