// SPDX-License-Identifier: Apache-2.0
// Tokens that are found by their spelling before a text is processed further: "<|im_end|>", "<s>", "<tool_call>".
//
// If several start at the same place, the longest wins, and the search continues behind it. lstrip and rstrip extend a
// token over the white space beside it. single_word allows no word character beside it. A token with `normalized` is
// normalised itself and searched in the normalised text between the other tokens.
// Source: AddedVocabulary of Hugging Face tokenizers, as of version 0.23. As in that source, a special token that is
// not parsed still hides other tokens that start within it.
// Time: O(text x longest token); the tokenizer refuses long tokens.
// Threads: immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/byte_trie.h"
#include "common/tokenizer/text_range.h"
#include "common/tokenizer/unicode/char_set.h"

namespace foretoken::tokenizer {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;
  bool lstrip = false;
  bool rstrip = false;
  bool single_word = false;
};

// A part of a text: an added token, or text to be encoded.
struct TextPart {
  std::optional<int32_t> id;  // of the added token
  absl::string_view text;     // text to encode, if there is no id; points into the split text
};

class AddedTokenMatcher {
 public:
  // Searches tokens[i] by patterns[i]; no pattern may be empty.
  AddedTokenMatcher(std::vector<AddedToken> tokens, const std::vector<std::string>& patterns);

  // Returns the parts in order, without empty texts. The text must be well-formed UTF-8.
  std::vector<TextPart> Split(absl::string_view text, bool parse_special) const;
  // The same, but a special token counts only if it lies in one of the ranges, which are in order and apart. A spelling
  // that does not lie in one of them hides no other token.
  std::vector<TextPart> Split(absl::string_view text, std::span<const TextRange> special_ranges) const;

 private:
  struct Match {
    size_t token_idx;
    size_t end;
  };
  enum class Hidden { kByUnparsed, kByNone };  // whether a special token that does not count hides others within it
  using MayParse = absl::FunctionRef<bool(size_t begin, size_t end)>;
  std::vector<TextPart> Split(absl::string_view text, MayParse may_parse, Hidden hidden) const;
  std::optional<Match> LongestAt(absl::string_view text, size_t at, MayParse may_parse, Hidden hidden) const;
  bool HasWordBeside(absl::string_view text, size_t begin, size_t end) const;

  std::vector<AddedToken> tokens_;
  ByteTrie trie_;            // maps to indices of tokens_
  CharSet word_characters_;  // empty if no token needs them
};

}  // namespace foretoken::tokenizer
