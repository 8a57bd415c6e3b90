// SPDX-License-Identifier: Apache-2.0
// Text of models and servers for a terminal.
#pragma once

#include <cstdio>
#include <string>

#include "absl/strings/string_view.h"
#include "client/text_attribution.h"
#include "nlohmann/json_fwd.hpp"

namespace foretoken::client {

// True on a terminal, unless NO_COLOR is set (https://no-color.org). `no_color` is that variable's value, or null.
bool WantsColor(std::FILE* out, const char* no_color);

enum class Ink { kPlain, kBold, kDim, kGreen, kRed };

// The text with the terminal codes of this ink.
std::string Paint(absl::string_view text, Ink ink);

// The text with its control characters made visible, but for line feeds and tabs, so that a model or a server cannot
// control the terminal.
std::string EscapeControls(absl::string_view text);

// The value as JSON in ASCII, so that no text in it controls the terminal. Bytes that are not UTF-8 become U+FFFD.
std::string JsonText(const nlohmann::ordered_json& json);

// The run for a terminal, with its controls escaped. Text from accepted guesses is green.
std::string ForTerminal(const TextRun& run, bool color);

}  // namespace foretoken::client
