// SPDX-License-Identifier: Apache-2.0
// The text of one sample: turns tokens into released text. Released text has whole characters only, and no part that
// may still become a stop string. A character that the prompt begins is released whole, for a client that continues
// from the tokens of a stream that broke off.
//
//   TextStream stream(tokenizer, {.prompt = prompt, .stop_strings = {"\n\n"}});
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
#include <span>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"
#include "verifier_service/request/stop_matcher.h"

namespace foretoken::verifier {

struct TextStreamOptions {
  std::span<const int32_t> prompt = {};        // it may end inside a character; empty: its text has ended
  std::vector<std::string> stop_strings = {};  // UTF-8, not empty
  bool include_stop_string = false;
  bool skip_special_tokens = true;
};

class TextStream {
 public:
  // Keeps no view of the prompt.
  TextStream(const tokenizer::Tokenizer& tokenizer, TextStreamOptions options);

  struct Appended {
    std::string text;  // released by this token
    std::optional<size_t> matched_stop_string =
        std::nullopt;  // index of the stop string; nothing may be appended after it
  };

  // Appends the next token of the sample. With counts_for_stop false (fewer than min_tokens so far) a stop string that
  // completes in this token's text does not stop the sample.
  Appended Append(int32_t token_id, bool counts_for_stop);

  // Returns the rest of a sample that ended without a stop string: the held-back text, and U+FFFD for an incomplete
  // character.
  std::string Flush();

 private:
  tokenizer::IncrementalDecoder decoder_;
  StopMatcher matcher_;
};

}  // namespace foretoken::verifier
