// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/name_style.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace foretoken::testing {

bool IsLowerSnakeCase(absl::string_view name) {
  const bool has_right_characters = std::all_of(
      name.begin(), name.end(), [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_'; });
  return has_right_characters && !name.empty() && absl::ascii_islower(name.front()) && name.back() != '_' &&
         !absl::StrContains(name, "__");
}

bool IsUpperSnakeCase(absl::string_view name) {
  const bool has_lower = std::any_of(name.begin(), name.end(), [](char c) { return absl::ascii_islower(c); });
  return !has_lower && IsLowerSnakeCase(absl::AsciiStrToLower(name));
}

bool IsPascalCase(absl::string_view name) {
  return !name.empty() && absl::ascii_isupper(name.front()) &&
         std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isalnum(c); });
}

std::string ToUpperSnakeCase(absl::string_view pascal) {
  std::string snake;
  for (size_t i = 0; i < pascal.size(); ++i) {
    if (i > 0 && absl::ascii_isupper(pascal[i]) && !absl::ascii_isupper(pascal[i - 1])) snake.push_back('_');
    snake.push_back(absl::ascii_toupper(pascal[i]));
  }
  return snake;
}

bool IsVersion(absl::string_view part) {
  if (!absl::ConsumePrefix(&part, "v")) return false;
  const auto consume_number = [&part] {
    const auto end = std::find_if_not(part.begin(), part.end(), [](char c) { return absl::ascii_isdigit(c); });
    const bool is_positive = end != part.begin() && part.front() != '0';
    part.remove_prefix(end - part.begin());
    return is_positive;
  };
  if (!consume_number()) return false;
  if (!absl::ConsumePrefix(&part, "alpha") && !absl::ConsumePrefix(&part, "beta")) return part.empty();
  return part.empty() || (consume_number() && part.empty());
}

}  // namespace foretoken::testing
