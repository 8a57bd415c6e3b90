// SPDX-License-Identifier: Apache-2.0
// A part of a text: the bytes [begin, end).
#pragma once

#include <cstddef>

namespace foretoken::tokenizer {

struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

}  // namespace foretoken::tokenizer
