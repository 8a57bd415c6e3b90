// SPDX-License-Identifier: Apache-2.0
// Finds the first of several stop strings in a text that arrives piece by piece, and says how much of the text is safe
// to show: what may still become a stop string is held back.
//
//   StopMatcher matcher({"\nUser:", "</s>"}, /*include_match=*/false);
//   StopMatcher::Released out = matcher.Append("Hello\nUs", true);   // out.text == "Hello"
//   out = matcher.Append("er: hi", true);                            // out.matched == 0, out.text == ""
//
// The string that is complete first wins; of those complete at the same byte, the one listed first. So the result
// depends on the text alone, never on how it was cut into pieces. Whole characters in, whole characters out, given that
// the strings are UTF-8.
// Cost: amortised O(1) per byte and string (Knuth, Morris and Pratt 1977).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace foretoken::verifier {

class StopMatcher {
 public:
  // The strings are not empty and at most 64 KiB each.
  StopMatcher(std::vector<std::string> stop_strings, bool include_match);

  struct Released {
    std::string text;
    std::optional<size_t> matched = std::nullopt;  // index of the stop string; the text ends here
  };

  // Not to be called after a match. With `counts` false a string that completes in this piece does not stop the text.
  Released Append(absl::string_view piece, bool counts);

  // What is held back, at the end of the text.
  std::string Flush();

 private:
  struct Pattern {
    std::string text;
    std::vector<uint16_t> borders;  // [length + 1] of every prefix, its longest proper border
    size_t num_matched = 0;         // bytes at the end of the text that are the pattern's first ones
  };

  // Moves every pattern on by one byte. Returns the first one that is complete now.
  std::optional<size_t> Advance(char byte);

  std::vector<Pattern> patterns_;
  bool include_match_;
  std::string held_back_;
};

}  // namespace foretoken::verifier
