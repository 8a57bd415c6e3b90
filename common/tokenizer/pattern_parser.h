// SPDX-License-Identifier: Apache-2.0
// Splits a pre-tokenizer's regular expression into operators and the sets of characters between them.
//
// Hugging Face files are written for Oniguruma (Ruby syntax). The parser returns operators in PCRE2's spelling. Every
// literal, class, property and "." is a set, with the members of Oniguruma's Unicode tables. "[a[^b]&&\p{L}]" and
// (?i:...) over ASCII are sets as well.
// Errors: INVALID_ARGUMENT names the expression and the construct. The parser refuses constructs that differ between
// the two languages or need more than sets: \b, \R, \K, \1, "{n,m}+", "{n}?", named groups, options other than i, POSIX
// brackets, and under (?i) characters beyond ASCII that have case.
// Threads: pure.
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/unicode/char_set.h"

namespace foretoken::tokenizer {

struct ParsedPattern {
  std::vector<std::variant<std::string, size_t>> pieces;  // operators, or indices into sets
  std::vector<CharSet> sets;                              // each set once
};

absl::StatusOr<ParsedPattern> ParsePattern(absl::string_view expression);

}  // namespace foretoken::tokenizer
