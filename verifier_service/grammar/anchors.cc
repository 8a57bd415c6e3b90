// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/anchors.h"

#include <cstddef>

namespace foretoken::verifier {
namespace {

// Whether everything that matches begins behind `before`, or one of the expression's alternatives does.
bool IsBeginning(absl::string_view before, int depth) {
  if (depth == 0) return before.empty() || before.back() == '|';
  return before.find_first_not_of("(?:") == before.npos;
}

bool IsEnd(absl::string_view after, int depth) {
  if (depth == 0) return after.empty() || after.front() == '|';
  return after.find_first_not_of(')') == after.npos;
}

}  // namespace

bool HasInnerAnchor(absl::string_view pattern) {
  int depth = 0;
  bool is_in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      ++i;  // the next character means itself
    } else if (is_in_class) {
      is_in_class = c != ']';
    } else if (c == '[') {
      is_in_class = true;
    } else if (c == '(' || c == ')') {
      depth += c == '(' ? 1 : -1;
    } else if (c == '^' && !IsBeginning(pattern.substr(0, i), depth)) {
      return true;
    } else if (c == '$' && !IsEnd(pattern.substr(i + 1), depth)) {
      return true;
    }
  }
  return false;
}

}  // namespace foretoken::verifier
