// SPDX-License-Identifier: Apache-2.0
// Which bytes of a sample's text speculation won. Text comes in whole characters and may lag behind its tokens, so the
// server says with each token where its text ends (GenerateResponse.text_ends).
//
//   tokens "he", "llo" with speculated {no, yes}, text_ends {2, 5}, text "hello" -> "he" plain, "llo" speculated
//
// Without text_ends nothing is known, and all text counts as plain. Threads: one object, one thread.
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

// Of one sample.
class TextAttribution {
 public:
  // The runs of the message's text; neighbours differ in `speculated`.
  std::vector<TextRun> Append(const foretoken::v1::GenerateResponse& response);

 private:
  struct Token {
    uint32_t text_end;
    bool speculated;
  };
  std::deque<Token> pending_;  // tokens whose text has not come in full
  uint64_t num_bytes_ = 0;     // of text so far
  bool speculated_ = false;    // of the last token whose text has come
};

}  // namespace foretoken::client
