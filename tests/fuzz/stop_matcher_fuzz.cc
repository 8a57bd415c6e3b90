// SPDX-License-Identifier: Apache-2.0
// Reads the input as stop strings and a text, one per line, the text last. The matcher gets the text in pieces. It
// finds the same place as a search of the whole text, and releases all of the text before that place.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "kernels/check.h"
#include "verifier_service/request/stop_matcher.h"

namespace foretoken::verifier {
namespace {

constexpr size_t kMaxStopStrings = 16, kMaxStopBytes = 256;

struct Match {
  size_t end = 0;
  size_t stop_idx = 0;
};

// The first byte at which a stop string is complete, by comparing all strings at all places.
std::optional<Match> Search(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    for (size_t i = 0; i < stops.size(); ++i) {
      if (absl::EndsWith(absl::string_view(text).substr(0, end), stops[i])) return Match{.end = end, .stop_idx = i};
    }
  }
  return std::nullopt;
}

void CheckPieces(const std::string& text, const std::vector<std::string>& stops, size_t piece_bytes) {
  const std::optional<Match> expected = Search(text, stops);
  StopMatcher matcher(stops, /*include_match=*/true);
  std::string released;
  std::optional<size_t> matched;
  for (size_t i = 0; i < text.size() && !matched; i += piece_bytes) {
    StopMatcher::Released piece = matcher.Append(absl::string_view(text).substr(i, piece_bytes), /*counts=*/true);
    released += piece.text;
    matched = piece.matched;
  }
  FT_CHECK(matched.has_value() == expected.has_value());
  if (!matched.has_value()) released += matcher.Flush();
  if (matched.has_value()) FT_CHECK(*matched == expected->stop_idx);
  FT_CHECK(released == text.substr(0, expected.has_value() ? expected->end : text.size()));
}

}  // namespace
}  // namespace foretoken::verifier

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken::verifier;
  const absl::string_view input(reinterpret_cast<const char*>(data), std::min<size_t>(size, 4096));
  std::vector<std::string> stops = absl::StrSplit(input, '\n');
  const std::string text = stops.back();
  stops.pop_back();
  std::erase_if(stops, [](const std::string& stop) { return stop.empty() || stop.size() > kMaxStopBytes; });
  stops.resize(std::min(stops.size(), kMaxStopStrings));
  for (const size_t piece_bytes : {1, 3, 64}) CheckPieces(text, stops, piece_bytes);
  return 0;
}
