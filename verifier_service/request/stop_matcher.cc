// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/request/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace foretoken::verifier {
namespace {

std::vector<uint16_t> Borders(absl::string_view pattern) {
  std::vector<uint16_t> borders(pattern.size() + 1, 0);
  for (size_t length = 2, border = 0; length <= pattern.size(); ++length) {
    while (border > 0 && pattern[border] != pattern[length - 1]) border = borders[border];
    if (pattern[border] == pattern[length - 1]) ++border;
    borders[length] = static_cast<uint16_t>(border);
  }
  return borders;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stop_strings, bool include_match) : include_match_(include_match) {
  for (std::string& text : stop_strings) {
    std::vector<uint16_t> borders = Borders(text);
    patterns_.push_back({.text = std::move(text), .borders = std::move(borders)});
  }
}

std::optional<size_t> StopMatcher::Advance(char byte) {
  std::optional<size_t> complete;
  for (size_t i = 0; i < patterns_.size(); ++i) {
    Pattern& pattern = patterns_[i];
    size_t& n = pattern.num_matched;
    if (n == pattern.text.size()) n = pattern.borders[n];  // after a completion that did not count
    while (n > 0 && pattern.text[n] != byte) n = pattern.borders[n];
    if (pattern.text[n] == byte) ++n;
    if (n == pattern.text.size() && !complete) complete = i;
  }
  return complete;
}

StopMatcher::Released StopMatcher::Append(absl::string_view piece, bool counts) {
  if (patterns_.empty()) return {.text = std::string(piece)};
  for (size_t i = 0; i < piece.size(); ++i) {
    const std::optional<size_t> complete = Advance(piece[i]);
    if (!complete || !counts) continue;
    std::string text = std::exchange(held_back_, {});
    text.append(piece.data(), i + 1);
    if (!include_match_) text.resize(text.size() - patterns_[*complete].text.size());
    return {.text = std::move(text), .matched = complete};
  }
  size_t num_open = 0;  // bytes at the end that may be part of a stop string
  for (const Pattern& pattern : patterns_) {
    const bool complete = pattern.num_matched == pattern.text.size();
    num_open = std::max<size_t>(num_open, complete ? pattern.borders[pattern.num_matched] : pattern.num_matched);
  }
  held_back_.append(piece.data(), piece.size());
  std::string text = held_back_.substr(0, held_back_.size() - num_open);
  held_back_.erase(0, text.size());
  return {.text = std::move(text)};
}

std::string StopMatcher::Flush() { return std::exchange(held_back_, {}); }

}  // namespace foretoken::verifier
