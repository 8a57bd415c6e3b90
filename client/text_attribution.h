// SPDX-License-Identifier: Apache-2.0
// Finds the bytes of a sample's text that come from accepted guesses. Text comes in whole characters and may lag behind
// its tokens, so the server sends the end of the text with each token (GenerateResponse.text_ends).
//
//   tokens "he", "llo" with speculated {no, yes}, text_ends {2, 5}, text "hello" -> "he" plain, "llo" speculated
//
// Without text_ends, all text counts as plain. Threads: one object, one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "foretoken/v1/generation.pb.h"

namespace foretoken::client {

struct TextRun {
  std::string text;
  bool speculated = false;
};

// The attribution of one sample's text.
class TextAttribution {
 public:
  // Returns the runs of the message's text. Neighbouring runs differ in `speculated`. A run has whole characters, even
  // if a text end lies inside one.
  std::vector<TextRun> Append(const foretoken::v1::GenerateResponse& response);

 private:
  struct Token {
    uint32_t text_end;
    bool speculated;
  };
  std::deque<Token> pending_;  // tokens whose text is incomplete
  uint64_t num_bytes_ = 0;     // bytes of text so far
  bool speculated_ = false;    // of the last token with complete text
};

}  // namespace foretoken::client
