// SPDX-License-Identifier: Apache-2.0
// A pre-tokenizer's regular expression taken apart: operators, and the sets of characters between them.
//
// Hugging Face files are written for Oniguruma (Ruby syntax). The operators come out as PCRE2 spells them; every
// literal, class, property and "." is a set, whose members are those of Oniguruma's Unicode tables. "[a[^b]&&\p{L}]"
// and (?i:...) over ASCII are sets as well.
// Errors: INVALID_ARGUMENT naming the expression and the construct for whatever means different things in the two
// languages or needs more than sets: \b, \R, \K, \1, "{n,m}+", "{n}?", named groups, options other than i, POSIX
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
  std::vector<std::variant<std::string, size_t>> pieces;  // operators, or an index into sets
  std::vector<CharSet> sets;                              // each once
};

absl::StatusOr<ParsedPattern> ParsePattern(absl::string_view expression);

}  // namespace foretoken::tokenizer
