// SPDX-License-Identifier: Apache-2.0
// The spelling of bytes in the files of byte-level tokenizers: one printable character for each of the 256 bytes ("Ġ"
// is a space).
//
// Source: the ByteLevel pre-tokenizer of Hugging Face, after GPT-2. Bytes that are printable in Latin-1 stand for
// themselves; the other 68, in order, are U+0100 and up.
// Threads: pure.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::tokenizer {

// Returns nullopt if a character of the spelling stands for no byte. Such a token never occurs in byte-level text.
std::optional<std::string> BytesOfSpelling(absl::string_view spelling);

std::string SpellingOfBytes(absl::string_view bytes);

}  // namespace foretoken::tokenizer
