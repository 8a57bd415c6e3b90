// SPDX-License-Identifier: Apache-2.0
// Model output for a terminal.
#pragma once

#include <cstdio>
#include <string>

#include "absl/strings/string_view.h"
#include "client/text_attribution.h"

namespace foretoken::client {

// True on a terminal, unless NO_COLOR is set (https://no-color.org). `no_color` is that variable's value, or null.
bool WantsColor(std::FILE* out, const char* no_color);

enum class Ink { kPlain, kBold, kDim, kGreen, kRed };

// The text with the terminal codes of this ink.
std::string Paint(absl::string_view text, Ink ink);

// The run for a terminal. Text from accepted guesses is green. Control characters become visible, so that a model
// cannot control the terminal.
std::string ForTerminal(const TextRun& run, bool color);

}  // namespace foretoken::client
