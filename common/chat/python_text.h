// SPDX-License-Identifier: Apache-2.0
// Text as Python makes it. Hugging Face renders templates in Python, and the bytes must be equal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/string_view.h"

namespace foretoken::chat {

// repr(number): "0.5", "1e-07", "1e+16", "3.0".
std::string PythonFloat(double number);

// repr(text): "'a'", or with other quotes if the text has these. Characters outside of ASCII stay as they are.
std::string PythonRepr(absl::string_view text);

// The text without Python's white space at the chosen ends, as str.strip, lstrip and rstrip.
absl::string_view StripSpace(absl::string_view text, bool left, bool right);

// len(text) and list(text) of well-formed UTF-8.
size_t NumCharacters(absl::string_view text);
std::vector<std::string_view> Characters(std::string_view text);

// text.upper() or text.lower() of well-formed UTF-8, but for letters other than "ß" that become several.
std::string ChangeCase(absl::string_view text, bool upper);

}  // namespace foretoken::chat
