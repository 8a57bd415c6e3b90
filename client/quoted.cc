// SPDX-License-Identifier: Apache-2.0
#include "client/quoted.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/utf8_bytes.h"
#include "common/tokenizer/unicode/utf8.h"

namespace foretoken::client {
namespace {

// Removes the first character, or byte, of `text` and returns its visible form.
std::string TakeShown(absl::string_view& text) {
  const auto first = static_cast<unsigned char>(text.front());
  const size_t length = first < 0x80 ? 1 : std::min<size_t>(tokenizer::Utf8Length(text.front()), text.size());
  const absl::string_view character = text.substr(0, length);
  if (first < 0x80) {
    text.remove_prefix(1);
    return absl::CEscape(character);
  }
  const bool is_c1 = first == 0xc2 && length == 2 && static_cast<unsigned char>(text[1]) < 0xa0;
  if (is_c1 || tokenizer::FirstInvalidUtf8(character).has_value()) {
    text.remove_prefix(1);
    return absl::StrFormat("\\x%02x", first);
  }
  text.remove_prefix(length);
  return std::string(character);
}

}  // namespace

std::string Quoted(absl::string_view bytes, size_t max_columns) {
  const size_t room = max_columns - 2;
  std::vector<std::string> shown;
  size_t num_columns = 0;
  while (!bytes.empty()) {
    shown.push_back(TakeShown(bytes));
    num_columns += NumColumns(shown.back());
    if (num_columns <= room) continue;
    while (num_columns > room - 1) {
      num_columns -= NumColumns(shown.back());
      shown.pop_back();
    }
    shown.push_back("…");
    break;
  }
  return absl::StrCat("\"", absl::StrJoin(shown, ""), "\"");
}

size_t NumColumns(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !base::ContinuesCharacter(byte); }));
}

std::string Padded(std::string text, size_t num_columns) {
  text.resize(text.size() + num_columns - std::min(num_columns, NumColumns(text)), ' ');
  return text;
}

}  // namespace foretoken::client
