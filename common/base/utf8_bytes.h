// SPDX-License-Identifier: Apache-2.0
// Where characters of UTF-8 begin and end, byte by byte.
//
//   WholeCharacters("aé", 2);  // "a": the second character has two bytes
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace foretoken::base {

// True for a byte of a character that is not its first.
constexpr bool ContinuesCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// The longest prefix of the text with whole characters and at most `max_bytes` bytes.
inline absl::string_view WholeCharacters(absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && ContinuesCharacter(text[max_bytes])) --max_bytes;
  return text.substr(0, max_bytes);
}

}  // namespace foretoken::base
