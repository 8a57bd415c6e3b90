// SPDX-License-Identifier: Apache-2.0
// The text of one sample: tokens in, released text out. Whole characters only, and nothing that may still become a stop
// string.
//
//   TextStream stream(tokenizer, {.stop_strings = {"\n\n"}});
//   TextStream::Appended appended = stream.Append(token_id, /*counts_for_stop=*/num_tokens > min_tokens);
//   if (appended.matched_stop_string) ...   // appended.text is the last text; no Flush
//   ...
//   text += stream.Flush();                 // the sample ended for another reason
//
// Threads: one thread per stream. The tokenizer must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"
#include "verifier_service/engine/stop_matcher.h"

namespace foretoken::verifier {

struct TextStreamOptions {
  std::vector<std::string> stop_strings = {};  // UTF-8, not empty
  bool include_stop_string = false;
  bool skip_special_tokens = true;
};

class TextStream {
 public:
  TextStream(const tokenizer::Tokenizer& tokenizer, TextStreamOptions options);

  struct Appended {
    std::string text;  // released by this token
    std::optional<size_t> matched_stop_string =
        std::nullopt;  // index of the stop string; nothing may be appended after it
  };

  // The next token of the sample. With counts_for_stop false (fewer than min_tokens so far) a stop string that
  // completes in this token's text is text like any other.
  Appended Append(int32_t token_id, bool counts_for_stop);

  // The rest, when the sample has ended without a stop string: what was held back, and U+FFFD for half a character.
  std::string Flush();

 private:
  tokenizer::IncrementalDecoder decoder_;
  StopMatcher matcher_;
};

}  // namespace foretoken::verifier
