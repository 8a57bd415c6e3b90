// SPDX-License-Identifier: Apache-2.0
#include "client/two_columns.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/terminal.h"
#include "common/base/utf8_bytes.h"

namespace foretoken::client {
namespace {

constexpr absl::string_view kSeparator = " │ ";
constexpr int kSeparatorWidth = 3;
constexpr int kTabWidth = 4;

struct Cell {
  std::string character;
  bool speculated = false;
};
using Line = std::vector<Cell>;

// Both columns have the same width, so equal texts break in the same places.
int ColumnWidth(int width) { return (std::max(width, 40) - kSeparatorWidth) / 2; }

// The lines of the text at their full length.
std::vector<Line> Split(std::span<const TextRun> runs) {
  std::vector<Line> lines(1);
  for (const TextRun& run : runs) {
    for (const char byte : ForTerminal(run, /*color=*/false)) {
      Line& line = lines.back();
      if (byte == '\n') {
        lines.emplace_back();
      } else if (byte == '\t') {
        line.resize(line.size() + kTabWidth, {.character = " ", .speculated = run.speculated});
      } else if (base::ContinuesCharacter(byte) && !line.empty()) {
        line.back().character.push_back(byte);
      } else {
        line.push_back({.character = std::string(1, byte), .speculated = run.speculated});
      }
    }
  }
  return lines;
}

// The place to break a line that is too long: after its last space, unless half of the column would stay empty.
size_t BreakOf(const Line& line, size_t width) {
  for (size_t end = width; end > width / 2; --end) {
    if (line[end - 1].character == " ") return end;
  }
  return width;
}

// Adds the line in pieces of at most `width` cells. Every piece but the first begins with an indent. The time is linear
// in the line, because the width bounds the work on a piece.
void WrapLine(const Line& line, size_t width, std::vector<Line>& wrapped) {
  const auto is_space = [](const Cell& cell) { return cell.character == " "; };
  const size_t num_spaces = std::find_if_not(line.begin(), line.end(), is_space) - line.begin();
  const size_t indent = std::min(num_spaces + 2, width / 2);
  std::span<const Cell> rest = line;
  Line piece;
  while (piece.size() + rest.size() > width) {
    const size_t num_indented = piece.size();
    const std::span<const Cell> fitting = rest.first(width - num_indented);
    piece.insert(piece.end(), fitting.begin(), fitting.end());
    piece.resize(BreakOf(piece, width));
    rest = rest.subspan(piece.size() - num_indented);
    wrapped.push_back(std::exchange(piece, Line(indent, {.character = " "})));
  }
  piece.insert(piece.end(), rest.begin(), rest.end());
  wrapped.push_back(std::move(piece));
}

std::vector<Line> Wrap(std::span<const TextRun> runs, size_t width) {
  std::vector<Line> wrapped;
  for (const Line& line : Split(runs)) WrapLine(line, width, wrapped);
  while (!wrapped.empty() && wrapped.back().empty()) wrapped.pop_back();
  return wrapped;
}

std::string Show(const Line& line, bool color) {
  std::string shown;
  for (size_t begin = 0; begin < line.size();) {
    std::string piece;
    size_t end = begin;
    for (; end < line.size() && line[end].speculated == line[begin].speculated; ++end) piece += line[end].character;
    shown += Paint(piece, color && line[begin].speculated ? Ink::kGreen : Ink::kPlain);
    begin = end;
  }
  return shown;
}

}  // namespace

std::vector<std::string> ToLines(const TwoColumns& columns) {
  const size_t width = ColumnWidth(columns.width);
  std::vector<Line> left = Wrap(columns.left, width);
  std::vector<Line> right = Wrap(columns.right, width);
  left.resize(std::max(left.size(), right.size()));
  right.resize(left.size());
  std::vector<std::string> lines;
  for (size_t i = 0; i < left.size(); ++i) {
    const std::string padding(width - left[i].size(), ' ');
    lines.push_back(absl::StrCat(Show(left[i], columns.color), padding, kSeparator, Show(right[i], columns.color)));
  }
  return lines;
}

std::string Rule(int width, absl::string_view joint) {
  std::string half;
  for (int i = 0; i < ColumnWidth(width) + 1; ++i) absl::StrAppend(&half, "─");
  return absl::StrCat(half, joint, half);
}

}  // namespace foretoken::client
