// SPDX-License-Identifier: Apache-2.0
// The bytes of tokens, shown in one line to a person.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::client {

// In double quotes, on one line: control characters, quotes, backslashes and bytes that are no whole character are
// escaped, other characters stay. What would not fit into `max_columns`, at least 3, ends with "…" before the quote.
//   Quoted("\n  déjà", 80) == R"("\n  déjà")"
std::string Quoted(absl::string_view bytes, size_t max_columns);

// How many columns a text of printable characters takes, each of them one.
size_t NumColumns(absl::string_view text);

// The text and as many spaces as are missing to `num_columns`.
std::string Padded(std::string text, size_t num_columns);

}  // namespace foretoken::client
