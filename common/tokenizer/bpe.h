// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one word: the "model" of tokenizer.json.
//
// A word starts as one symbol per character (or per byte, for byte-level files). Then the pair of neighbours that the
// file's merges list first becomes one symbol, the leftmost where it occurs more than once, until no pair is in the
// list. A character without a token becomes its bytes ("<0x0A>", byte_fallback), or the unknown token, or nothing.
// Time: O(n log n) in the word's length: candidates are in a heap, symbols in a doubly linked list.
// Errors: FromJson INVALID_ARGUMENT naming the field: another model type, dropout, prefixes and suffixes, merges of
// tokens that are not in the vocabulary, ids that are negative, twice used or far beyond the number of tokens.
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

namespace foretoken::tokenizer {

class Bpe {
 public:
  using Ids = absl::flat_hash_map<std::string, int32_t>;

  // Whether the model is one that FromJson reads; to be asked first, as other models have other vocabularies.
  static absl::Status CheckSupported(const JsonValue& model);
  // `ids`: the file's vocabulary, as read by VocabularyFromJson.
  static absl::StatusOr<Bpe> FromJson(const JsonValue& model, const Ids& ids, bool is_byte_level);

  // Adds the word's tokens. A byte-level word is any bytes, another well-formed UTF-8.
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

  absl::Status ReadMerges(const JsonValue& merges, const Ids& ids);
  absl::Status ReadUnknown(const JsonValue& model, const Ids& ids);
  const Merge* FindMerge(int32_t left, int32_t right) const;
  void AppendSymbols(absl::string_view word, std::vector<int32_t>& symbols) const;
  void MergeAll(std::vector<int32_t>& symbols) const;

  absl::flat_hash_map<std::string, int32_t> ids_;  // by what a word contains: bytes for byte-level files
  absl::flat_hash_map<uint64_t, Merge> merges_;    // by (left << 32 | right)
  std::array<std::optional<int32_t>, 256> byte_ids_;
  std::optional<int32_t> unknown_id_;
  bool is_byte_level_ = false;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;  // a word that is itself a token is that token
};

// Ids index arrays, so a file of ten tokens must not call one of them 2,000,000,000. Some unused ids are usual.
size_t MaxId(size_t num_tokens);

// The "vocab" of a model.
absl::StatusOr<Bpe::Ids> VocabularyFromJson(const JsonValue& model);

}  // namespace foretoken::tokenizer
