// SPDX-License-Identifier: Apache-2.0
// The Unicode data of Hugging Face's `tokenizers`, as tables of our own. System libraries have other versions of
// Unicode. A character that one of them does not have would be cut or normalised differently.
//
// make_unicode_tables.py made the tables. It queries the library and records its versions.
#pragma once

#include <cstdint>
#include <span>

#include "absl/strings/string_view.h"

namespace foretoken::tokenizer {

inline constexpr char32_t kNumCodePoints = 0x110000;

// [first, last]
struct CodePointRange {
  char32_t first;
  char32_t last;

  friend bool operator==(const CodePointRange&, const CodePointRange&) = default;
};

struct NamedSet {
  absl::string_view name;
  std::span<const CodePointRange> ranges;  // ascending, apart
};

// A canonical decomposition by one level. The table has no Hangul syllables, which arithmetic decomposes.
struct Decomposition {
  char32_t composite;
  char32_t first;
  char32_t second;  // 0: the composite becomes `first` alone
  bool composes;    // NFC composes the two again
};

// Two letters and a space for each general category.
extern const absl::string_view kCategoryNames;
// first << 5 | category: the code points from `first` to the next entry's have the category of that number.
extern const std::span<const uint32_t> kCategoryRuns;
// Properties and scripts, with the names of regular expressions.
extern const std::span<const NamedSet> kNamedSets;
// The characters that the pre-tokenizers Digits and Punctuation cut out. Their versions of Unicode differ from that of
// the categories.
extern const std::span<const CodePointRange> kNumeric;
extern const std::span<const CodePointRange> kPunctuation;
// first << 8 | class: as kCategoryRuns, for canonical combining classes. Before the first entry the class is 0.
extern const std::span<const uint32_t> kCombiningClassRuns;
extern const std::span<const Decomposition> kDecompositions;  // ascending

}  // namespace foretoken::tokenizer
