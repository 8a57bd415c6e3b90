// SPDX-License-Identifier: Apache-2.0
// Normalization Form C, with the tables of Hugging Face's `tokenizers`. These tables have an older Unicode version than
// its regular expressions (unicode_tables.h): a combining mark of a later version stays in its place.
//
// Source: The Unicode Standard, section 3.11; Hangul syllables by section 3.12.
// Time: O(n log n) for any text: runs of combining marks are sorted. Most texts have no character that NFC could
// change, and are only scanned.
// Threads: pure.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::tokenizer {

// The texts must be well-formed UTF-8.
std::string ToNfc(absl::string_view text);
// True if NFC treats the text before this place and the text behind it apart, whatever they are.
bool IsNfcBoundary(absl::string_view text, size_t at);

}  // namespace foretoken::tokenizer
