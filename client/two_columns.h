// SPDX-License-Identifier: Apache-2.0
// Two texts side by side, as lines of a fixed width.
//
//   ToLines({.left = {{"def f():\n    return 1"}}, .right = {{"def f():"}}, .width = 40})
//
//   def f():           │ def f():
//       return 1       │
//
// A line that is too long for its column goes on below, indented, if possible with a whole word. What speculation won
// is green where there is colour. Control characters become visible. Every character is taken to be one column wide.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/text_attribution.h"

namespace foretoken::client {

struct TwoColumns {
  std::vector<TextRun> left;
  std::vector<TextRun> right;
  int width = 100;  // of both columns together, in characters; at least 40
  bool color = false;
};

// Without line ends. Empty lines at the end of both texts are left out.
std::vector<std::string> ToLines(const TwoColumns& columns);

// A line across both columns; `joint` is where it meets the one between them, for example "┼".
std::string Rule(int width, absl::string_view joint);

}  // namespace foretoken::client
