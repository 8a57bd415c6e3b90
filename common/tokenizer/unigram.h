// SPDX-License-Identifier: Apache-2.0
// The Unigram model of SentencePiece: cuts a word into the tokens whose scores, which are log-probabilities, have the
// largest sum.
//
// A character that is no token becomes an unknown one, with a score 10 below the lowest; neighbouring unknown
// characters form one run. Such a run becomes the token with that spelling, or its bytes ("<0x0A>", byte_fallback) if
// all of them are tokens, or the unknown token. If two cuts have equal sums, the cut whose last token starts first
// wins, as in Hugging Face.
// Source: T. Kudo, arXiv 1804.10959; the model Unigram of Hugging Face tokenizers, encode_optimized.
// Time: O(word x longest token); a token has at most 1024 bytes, real ones some 50. Space: 24 bytes per byte of the
// word.
// Errors: FromJson returns INVALID_ARGUMENT, which names the field. Encode returns INVALID_ARGUMENT for an unknown
// character if the file has no unknown token.
// Threads: immutable.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/byte_trie.h"
#include "common/tokenizer/json_value.h"
#include "common/tokenizer/token_ids.h"

namespace foretoken::tokenizer {

class Unigram {
 public:
  // `ids` is the file's vocabulary, read by TokenIdsFromList. Reserved tokens are no tokens of a cut.
  static absl::StatusOr<Unigram> FromJson(const JsonValue& model, TokenIds ids, const ReservedIds& reserved);

  // Adds the word's tokens. The word must be well-formed UTF-8.
  absl::Status Encode(absl::string_view word, std::vector<int32_t>& out) const;

 private:
  // The best cut of the text before some place of the word.
  struct BestEnding {
    double score = 0;
    size_t begin = 0;           // of its last token
    std::optional<int32_t> id;  // of that token; unset: no cut is known yet
  };
  struct Piece {
    absl::string_view text;
    int32_t id;
  };

  Unigram(TokenIds ids, ByteTrie trie) : ids_(std::move(ids)), trie_(std::move(trie)) {}

  absl::StatusOr<std::vector<BestEnding>> FindEndings(absl::string_view word) const;
  std::vector<Piece> FuseUnknown(absl::string_view word, const std::vector<BestEnding>& endings) const;
  void AppendUnknown(absl::string_view text, std::vector<int32_t>& out) const;

  TokenIds ids_;
  ByteTrie trie_;
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0;
  std::optional<int32_t> unknown_id_;
  bool byte_fallback_ = false;
  std::array<std::optional<int32_t>, 256> byte_ids_;
};

}  // namespace foretoken::tokenizer
