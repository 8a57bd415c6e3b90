// SPDX-License-Identifier: Apache-2.0
// A pre-tokeniser's regular expression.
//
// Hugging Face files are written for Oniguruma (Ruby syntax); PCRE2 runs them here, with JIT where the machine has it,
// in UTF and UCP mode. The few spellings that mean different things in the two are translated (\s, \w) or refused by
// name (\h, \b, \W in a class, nested and intersected classes, "{n,m}+"). Unicode tables are PCRE2's.
//
// Time: a match is given a number of steps proportional to the text's length, so that a pattern which backtracks
// without bound ends in an error instead of minutes. Errors: INVALID_ARGUMENT naming the pattern when it does not
// compile; RESOURCE_EXHAUSTED when a match takes too long. Threads: immutable; any number of threads may call FindAll
// at once.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

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
  // Matches exactly these characters.
  static absl::StatusOr<Pattern> Literal(absl::string_view text);

  // All matches from left to right, without overlap; empty ones too. The text must be well-formed UTF-8.
  absl::StatusOr<std::vector<Span>> FindAll(absl::string_view text) const;

 private:
  struct CodeDeleter {
    void operator()(pcre2_real_code_8* code) const;
  };

  Pattern(std::string expression, pcre2_real_code_8* code) : expression_(std::move(expression)), code_(code) {}
  static absl::StatusOr<Pattern> CompileTranslated(std::string expression, absl::string_view original);

  std::string expression_;  // as in the file
  std::unique_ptr<pcre2_real_code_8, CodeDeleter> code_;
};

}  // namespace foretoken::tokenizer
