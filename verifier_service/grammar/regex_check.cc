// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/regex_check.h"

#include <cstddef>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace foretoken::verifier {
namespace {

constexpr char kInnerAnchor[] = "anchors are not supported inside";

// Whether everything that matches begins behind `before`, or one of the expression's alternatives does.
bool IsBeginning(absl::string_view before, size_t depth) {
  if (depth == 0) return before.empty() || before.back() == '|';
  return before.find_first_not_of("(?:") == before.npos;
}

bool IsEnd(absl::string_view after, size_t depth) {
  if (depth == 0) return after.empty() || after.front() == '|';
  return after.find_first_not_of(')') == after.npos;
}

// `escape` begins behind the backslash.
std::string BadEscape(absl::string_view escape) {
  constexpr absl::string_view kLetters = "aBbcDdefknPprSstuvWwx";  // of some of them XGrammar says why it refuses them
  if (escape.empty()) return "";
  if (absl::ascii_isalpha(static_cast<unsigned char>(escape[0])) && !absl::StrContains(kLetters, escape[0])) {
    return absl::StrCat("the escape \\", escape.substr(0, 1), " is not supported");
  }
  constexpr size_t kHexEnd = 3;  // of "x41", behind which XGrammar would read on
  if (escape[0] == 'x' && escape.size() > kHexEnd &&
      absl::ascii_isxdigit(static_cast<unsigned char>(escape[kHexEnd]))) {
    return absl::StrCat("the escape \\", escape.substr(0, kHexEnd),
                        " is not supported before a hexadecimal digit: ", "expected \\u00",
                        escape.substr(1, kHexEnd - 1));
  }
  return "";
}

bool BeginsRepetition(absl::string_view after) {
  return !after.empty() && (after[0] == '*' || after[0] == '+' || after[0] == '{');
}

}  // namespace

std::string BadRegex(absl::string_view pattern) {
  std::vector<bool> has_anchor;  // of the open groups
  bool is_in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const absl::string_view before = pattern.substr(0, i), after = pattern.substr(i + 1);
    if (c == '\\') {
      if (std::string bad = BadEscape(after); !bad.empty()) return bad;
      ++i;  // the next character is no sign
    } else if (is_in_class) {
      is_in_class = c != ']';
    } else if (c == '[') {
      is_in_class = true;
    } else if (c == '(') {
      has_anchor.push_back(false);
    } else if (c == ')' && !has_anchor.empty()) {
      const bool had_anchor = has_anchor.back();
      has_anchor.pop_back();
      if (had_anchor && BeginsRepetition(after)) return kInnerAnchor;
      if (had_anchor && !has_anchor.empty()) has_anchor.back() = true;
    } else if (c == '^' || c == '$') {
      const size_t depth = has_anchor.size();
      if (!(c == '^' ? IsBeginning(before, depth) : IsEnd(after, depth))) return kInnerAnchor;
      if (depth > 0) has_anchor.back() = true;
    }
  }
  return "";
}

}  // namespace foretoken::verifier
