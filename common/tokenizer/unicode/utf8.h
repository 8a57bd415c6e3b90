// SPDX-License-Identifier: Apache-2.0
// UTF-8: checks it, walks it, and assembles it from bytes that arrive in pieces.
//
// "Well-formed" is The Unicode Standard, table 3-7: no surrogates, no overlong forms, nothing above U+10FFFF.
// Threads: free functions are pure; one Utf8Assembler, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::tokenizer {

// The place of the first byte that is not part of a well-formed sequence.
std::optional<size_t> FirstInvalidUtf8(absl::string_view text);

// The length of the character with this first byte. The text must be well-formed.
inline size_t Utf8Length(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

struct CodePoint {
  char32_t value;
  size_t num_bytes;
};
// The character that starts at `at`. The text must be well-formed, and `at` the start of a character.
CodePoint DecodeUtf8(absl::string_view text, size_t at);
void AppendUtf8(char32_t value, std::string& out);

// The replacement of a broken sequence: one U+FFFD for all of its bytes (the Unicode recommendation, Rust's lossy
// conversion), or one per byte (as Hugging Face does for byte tokens).
enum class Replacement { kPerSequence, kPerByte };

// Takes bytes and returns whole characters. At most three bytes, the start of a possible character, wait.
class Utf8Assembler {
 public:
  explicit Utf8Assembler(Replacement replacement) : replacement_(replacement) {}

  void Append(absl::string_view bytes, std::string& out);
  // No more bytes come: the waiting bytes become U+FFFD.
  void Flush(std::string& out);

 private:
  bool Continues(uint8_t byte) const;

  Replacement replacement_;
  std::string held_back_;
};

// The text with one U+FFFD for each broken sequence. String fields of protocol buffers hold nothing else.
std::string ValidUtf8(absl::string_view text);

}  // namespace foretoken::tokenizer
