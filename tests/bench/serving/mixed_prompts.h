// SPDX-License-Identifier: Apache-2.0
// Prompts of several kinds, so that no single proposer is the best for all: fresh code, code that repeats itself, and a
// file with the beginning of an edited copy.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace foretoken::bench {

inline constexpr int kPromptKinds = 3;

// A class with getters of one pattern, up to the first setter.
std::string RepetitivePrompt(int variant);

// A file, which is `head` with the model's output below it, and the beginning of a copy with another first line. A
// model as small as the demo's cannot copy any file, but below the same head it repeats its own output with small
// changes.
std::string EditedFilePrompt(absl::string_view head, absl::string_view body);

// One prompt of each kind in turn, all different; as many of each kind as `fresh` and `edited` both have.
std::vector<std::string> MixedPrompts(std::span<const std::string> fresh, std::span<const std::string> edited);

}  // namespace foretoken::bench
