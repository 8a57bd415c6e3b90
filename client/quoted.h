// SPDX-License-Identifier: Apache-2.0
// The bytes of tokens as one line of text for a person.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::client {

// Returns the text in double quotes. It escapes control characters, quotes, backslashes and bytes that are no whole
// character. A text that does not fit into `max_columns`, at least 3, ends with "…" before the quote.
//   Quoted("\n  déjà", 80) == R"("\n  déjà")"
std::string Quoted(absl::string_view bytes, size_t max_columns);

// The columns of a text of printable characters. Each character counts as one column.
size_t NumColumns(absl::string_view text);

// The text, padded with spaces to `num_columns`.
std::string Padded(std::string text, size_t num_columns);

}  // namespace foretoken::client
