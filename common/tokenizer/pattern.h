// SPDX-License-Identifier: Apache-2.0
// The matches that a pre-tokenizer searches for in a text: of a regular expression, of a string, or of any character of
// a set.
//
// A regular expression's characters are grouped into classes that it does not distinguish (char_classes.h). PCRE2, with
// JIT if the machine has it, runs over the classes, which are bytes. So our tables decide which characters are letters,
// and the library's do not matter. pattern_parser.h lists the supported expressions.
//
// Time: the steps of a match are bounded in proportion to the text's length, so that a pattern with endless
// backtracking ends with an error, not after minutes.
// Errors: INVALID_ARGUMENT with the pattern if it does not compile; RESOURCE_EXHAUSTED if a match takes too long.
// Threads: immutable; any number of threads may call FindAll at the same time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/unicode/char_classes.h"

struct pcre2_real_code_8;

namespace foretoken::tokenizer {

// Bytes [begin, end) of a text.
struct Span {
  size_t begin;
  size_t end;
};

class Pattern {
 public:
  static absl::StatusOr<Pattern> Compile(absl::string_view expression);
  // Matches exactly these characters. An empty text has no matches.
  static Pattern Literal(absl::string_view text) { return Pattern(std::string(text)); }
  // Matches each of these characters on its own.
  static Pattern AnyOf(const CharSet& set);

  // Returns all matches from left to right, without overlap, and empty matches too. The text must be well-formed UTF-8.
  absl::StatusOr<std::vector<Span>> FindAll(absl::string_view text) const;

 private:
  struct CodeDeleter {
    void operator()(pcre2_real_code_8* code) const;
  };
  struct Expression {
    std::string text;  // as in the file
    CharClasses classes;
    std::unique_ptr<pcre2_real_code_8, CodeDeleter> code;  // over the classes' symbols
  };
  struct Member {
    CharClasses classes;  // made from one set
  };

  explicit Pattern(std::variant<Expression, std::string, Member> kind) : kind_(std::move(kind)) {}
  static absl::StatusOr<std::vector<Span>> Find(const Expression& expression, absl::string_view text);
  static std::vector<Span> Find(const std::string& literal, absl::string_view text);
  static std::vector<Span> Find(const Member& member, absl::string_view text);

  std::variant<Expression, std::string, Member> kind_;
};

}  // namespace foretoken::tokenizer
