// SPDX-License-Identifier: Apache-2.0
// The double that a reader of a float expects: 0.8 for 0.8f, and not 0.800000011920929.
#pragma once

#include <charconv>
#include <iterator>

namespace foretoken::base {

// The double that the shortest decimal form of a float denotes.
inline double ShortestDouble(float value) {
  char text[32];
  const std::to_chars_result end = std::to_chars(std::begin(text), std::end(text), value);
  double shortest = value;
  std::from_chars(std::begin(text), end.ptr, shortest);
  return shortest;
}

}  // namespace foretoken::base
