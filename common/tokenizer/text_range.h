// SPDX-License-Identifier: Apache-2.0
// A part of a text: the bytes [begin, end).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace foretoken::tokenizer {

struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

// A text with some of its parts, in order and apart.
struct RangedText {
  std::string text;
  std::vector<TextRange> ranges = {};
};

}  // namespace foretoken::tokenizer
