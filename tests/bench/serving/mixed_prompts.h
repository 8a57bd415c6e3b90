// SPDX-License-Identifier: Apache-2.0
// Prompts of several kinds, so that no one proposer knows them all best: fresh code, code that repeats itself, and a
// file of which an edited copy is being written.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace foretoken::bench {

inline constexpr int kPromptKinds = 3;

// A class whose getters are all alike, up to the first setter.
std::string RepetitivePrompt(int variant);

// A file, `head` and what the model wrote below it, and the beginning of a copy that has another first line. A model as
// small as the demo's cannot copy any file, but it repeats its own below the same head, with small changes.
std::string EditedFilePrompt(absl::string_view head, absl::string_view body);

// One of each kind in turn, no two alike; as many of each as `fresh` and `edited` both have.
std::vector<std::string> MixedPrompts(std::span<const std::string> fresh, std::span<const std::string> edited);

}  // namespace foretoken::bench
