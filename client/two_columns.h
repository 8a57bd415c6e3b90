// SPDX-License-Identifier: Apache-2.0
// Two texts side by side, as lines of a fixed width.
//
//   ToLines({.left = {{"def f():\n    return 1"}}, .right = {{"def f():"}}, .width = 40})
//
//   def f():           │ def f():
//       return 1       │
//
// A line that is too long for its column continues on the next line, indented, and breaks at a space if possible. With
// colour, accepted guesses are green. Control characters become visible. Every character counts as one column.
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

// The lines without line ends. Leaves out empty lines at the end of both texts.
std::vector<std::string> ToLines(const TwoColumns& columns);

// A line across both columns. `joint` stands where it meets the line between the columns, for example "┼".
std::string Rule(int width, absl::string_view joint);

}  // namespace foretoken::client
