// SPDX-License-Identifier: Apache-2.0
// What a pre-tokenizer looks for in a text: a regular expression, a string, or any character of a set.
//
// A regular expression's characters are divided into classes that it does not tell apart (char_classes.h), and PCRE2,
// with JIT where the machine has it, runs over the classes, which are bytes. So which character is a letter is decided
// by our tables and not by the library's. Which expressions there are: pattern_parser.h.
//
// Time: a match is given a number of steps proportional to the text's length, so that a pattern which backtracks
// without bound ends in an error instead of minutes. Errors: INVALID_ARGUMENT naming the pattern when it does not
// compile; RESOURCE_EXHAUSTED when a match takes too long. Threads: immutable; any number of threads may call FindAll
// at once.
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
  // Matches exactly these characters. An empty text is found nowhere.
  static Pattern Literal(absl::string_view text) { return Pattern(std::string(text)); }
  // Matches each of these characters on its own.
  static Pattern AnyOf(const CharSet& set);

  // All matches from left to right, without overlap; empty ones too. The text must be well-formed UTF-8.
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
    CharClasses classes;  // of one set
  };

  explicit Pattern(std::variant<Expression, std::string, Member> kind) : kind_(std::move(kind)) {}
  static absl::StatusOr<std::vector<Span>> Find(const Expression& expression, absl::string_view text);
  static std::vector<Span> Find(const std::string& literal, absl::string_view text);
  static std::vector<Span> Find(const Member& member, absl::string_view text);

  std::variant<Expression, std::string, Member> kind_;
};

}  // namespace foretoken::tokenizer
