// SPDX-License-Identifier: Apache-2.0
// Prompts of several kinds, so that no one proposer knows them all best: fresh code, code that repeats itself, and a
// file of which an edited copy is being written.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace foretoken::bench {

inline constexpr int kPromptKinds = 3;

// One of each kind for each of the fresh ones, no two alike.
std::vector<std::string> MixedPrompts(std::span<const std::string> fresh);

// A class whose getters are all alike, up to the first setter.
std::string RepetitivePrompt(int variant);

// A file of about 350 tokens, an edited copy of it, and the beginning of another one, about 800 tokens in all. A small
// model goes on copying.
std::string EditedFilePrompt(int variant);

}  // namespace foretoken::bench
