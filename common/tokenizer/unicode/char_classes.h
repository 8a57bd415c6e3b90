// SPDX-License-Identifier: Apache-2.0
// Spells texts in an alphabet of at most 256 symbols: characters that no set in use distinguishes share a symbol.
//
//   FT_ASSIGN_OR_RETURN(CharClasses classes, CharClasses::Make({letters, digits}));
//   classes.SymbolsOf(0)                  // the symbols of letters: "\x01"
//   classes.Spell("\u00e9t\u00e9 1")      // "\x01\x01\x01\x00\x02", and the place where each character begins
//
// So a pattern over classes of characters needs only bytes, and our own tables define the classes.
// The line feed is always the symbol '\n', and no other character is.
// Errors: Make returns INVALID_ARGUMENT for sets that distinguish more than 256 kinds of characters.
// Time: a table look-up per character. Space: 256 bytes for each kind of block of 256 code points, about 60 KB.
// Threads: immutable.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/unicode/char_set.h"

namespace foretoken::tokenizer {

struct SpelledText {
  std::string symbols;            // one per character
  std::vector<uint32_t> offsets;  // of the characters and of the text's end; empty: every character is one byte

  size_t OffsetOf(size_t symbol_idx) const { return offsets.empty() ? symbol_idx : offsets[symbol_idx]; }
};

class CharClasses {
 public:
  static absl::StatusOr<CharClasses> Make(std::span<const CharSet> sets);

  // The symbols of the characters in sets[set_idx].
  const std::string& SymbolsOf(size_t set_idx) const { return symbols_[set_idx]; }
  uint8_t SymbolOf(char32_t c) const { return pages_[page_of_[c >> 8]][c & 0xff]; }
  // The text must be well-formed UTF-8 of less than 4 GiB.
  SpelledText Spell(absl::string_view text) const;

 private:
  using Page = std::array<uint8_t, 256>;

  void AddPages(std::span<const uint8_t> symbol_of_run, std::span<const char32_t> run_begins);

  std::vector<std::string> symbols_;
  std::vector<uint16_t> page_of_;  // [0x1100]
  std::vector<Page> pages_;
};

}  // namespace foretoken::tokenizer
