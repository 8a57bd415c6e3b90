// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/request/text_stream.h"

#include <algorithm>
#include <utility>

namespace foretoken::verifier {

TextStream::TextStream(const tokenizer::Tokenizer& tokenizer, TextStreamOptions options)
    : decoder_(tokenizer, {.skip_special = options.skip_special_tokens, .continues_text = true}),
      matcher_(std::move(options.stop_strings), options.include_stop_string) {
  // The bytes of a character that is not whole are at most three, and each of their tokens has at least one. A special
  // token ends a character, also where it adds no text.
  constexpr size_t kMostTokens = 3;
  size_t num_tokens = 0;
  const auto id_before = [&] { return options.prompt[options.prompt.size() - num_tokens - 1]; };
  while (num_tokens < std::min(options.prompt.size(), kMostTokens) && !tokenizer.vocabulary().IsSpecial(id_before())) {
    ++num_tokens;
  }
  for (const int32_t id : options.prompt.last(num_tokens)) decoder_.Append(id);
}

TextStream::Appended TextStream::Append(int32_t token_id, bool counts_for_stop) {
  StopMatcher::Released released = matcher_.Append(decoder_.Append(token_id), counts_for_stop);
  return {.text = std::move(released.text), .matched_stop_string = released.matched};
}

std::string TextStream::Flush() {
  std::string text = matcher_.Append(decoder_.Flush(), /*counts=*/false).text;
  return text + matcher_.Flush();
}

}  // namespace foretoken::verifier
