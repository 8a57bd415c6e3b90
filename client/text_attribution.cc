// SPDX-License-Identifier: Apache-2.0
#include "client/text_attribution.h"

#include <algorithm>

#include "absl/strings/string_view.h"
#include "common/base/utf8_bytes.h"

namespace foretoken::client {

std::vector<TextRun> TextAttribution::Append(const foretoken::v1::GenerateResponse& response) {
  for (int i = 0; i < std::min(response.text_ends_size(), response.speculated_size()); ++i) {
    pending_.push_back({response.text_ends(i), response.speculated(i)});
  }
  std::vector<TextRun> runs;
  absl::string_view text = response.text();
  while (!text.empty()) {
    while (!pending_.empty() && pending_.front().text_end <= num_bytes_) {
      speculated_ = pending_.front().speculated;
      pending_.pop_front();
    }
    // Text after the last token replaces that token's unfinished character, so it belongs to that token.
    uint64_t length = text.size();
    if (!pending_.empty()) {
      speculated_ = pending_.front().speculated;
      length = std::min<uint64_t>(length, pending_.front().text_end - num_bytes_);
      // A terminal may take a part of a character for a command, and controls are escaped run by run.
      while (length < text.size() && base::ContinuesCharacter(text[length])) ++length;
    }
    if (runs.empty() || runs.back().speculated != speculated_) runs.push_back({.text = "", .speculated = speculated_});
    runs.back().text.append(text.data(), length);
    text.remove_prefix(length);
    num_bytes_ += length;
  }
  return runs;
}

}  // namespace foretoken::client
