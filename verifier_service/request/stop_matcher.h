// SPDX-License-Identifier: Apache-2.0
// Finds the first of several stop strings in a text that arrives in pieces. It releases the text that cannot be part of
// a stop string and holds back the rest.
//
//   StopMatcher matcher({"\nUser:", "</s>"}, /*include_match=*/false);
//   StopMatcher::Released out = matcher.Append("Hello\nUs", true);   // out.text == "Hello"
//   out = matcher.Append("er: hi", true);                            // out.matched == 0, out.text == ""
//
// The first complete string wins. If several complete at the same byte, the first in the list wins. So the result
// depends on the text alone, never on its pieces. If the pieces are whole characters and the strings are UTF-8, the
// released text is whole characters.
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

  // Adds a piece and returns the released text. With `counts` false a string that completes in this piece does not stop
  // the text. Must not be called after a match.
  Released Append(absl::string_view piece, bool counts);

  // Returns the held-back text at the end of the text.
  std::string Flush();

 private:
  struct Pattern {
    std::string text;
    std::vector<uint16_t> borders;  // [length + 1] the longest proper border of every prefix
    size_t num_matched = 0;         // bytes of the pattern that match the text's end
  };

  // Advances every pattern by one byte. Returns the first complete pattern.
  std::optional<size_t> Advance(char byte);

  std::vector<Pattern> patterns_;
  bool include_match_;
  std::string held_back_;
};

}  // namespace foretoken::verifier
