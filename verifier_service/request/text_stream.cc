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
  const std::span<const int32_t> last = options.prompt.last(std::min<size_t>(options.prompt.size(), 3));
  const auto is_special = [&](int32_t id) { return tokenizer.vocabulary().IsSpecial(id); };
  const auto special = std::find_if(last.rbegin(), last.rend(), is_special);
  for (const int32_t id : last.last(static_cast<size_t>(special - last.rbegin()))) decoder_.Append(id);
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
