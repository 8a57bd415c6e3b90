// SPDX-License-Identifier: Apache-2.0
// A set of code points, and the sets that regular expressions know by name.
//
//   CharSet letters_and_digits = *PropertySet("L");
//   letters_and_digits.Add(*PropertySet("Nd"));
//
// Time: each operation is linear in the numbers of ranges. Threads: plain data.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/tokenizer/unicode/unicode_tables.h"

namespace foretoken::tokenizer {

class CharSet {
 public:
  CharSet() = default;
  CharSet(char32_t first, char32_t last) : ranges_{{first, last}} {}
  explicit CharSet(std::span<const CodePointRange> ranges) : ranges_(ranges.begin(), ranges.end()) {}

  void Add(const CharSet& other);
  CharSet Complement() const;
  CharSet Intersection(const CharSet& other) const;

  bool Contains(char32_t c) const;
  // Ascending, with at least one code point between two ranges.
  std::span<const CodePointRange> ranges() const { return ranges_; }

  friend bool operator==(const CharSet&, const CharSet&) = default;

 private:
  std::vector<CodePointRange> ranges_;
};

// The set of a general category ("Lu", "L"), a script ("Han") or another property ("Alphabetic"); nullopt: the name is
// not known here.
std::optional<CharSet> PropertySet(absl::string_view name);

// The meaning of \w, in a class, and of \s in patterns.
CharSet WordSet();
CharSet WhiteSpaceSet();

}  // namespace foretoken::tokenizer
