// SPDX-License-Identifier: Apache-2.0
// A vocabulary of all single bytes, and what a grammar over it takes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "verifier_service/grammar/grammar.h"
#include "verifier_service/grammar/grammar_matcher.h"

namespace foretoken::testing {

inline constexpr int32_t kEndOfBytes = 256;

// Token i is byte i; token 256 ends the text.
inline verifier::GrammarTokens ByteTokens() {
  verifier::GrammarTokens tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.bytes.emplace_back(1, static_cast<char>(byte));
  tokens.bytes.emplace_back();
  tokens.end_token_ids = {kEndOfBytes};
  return tokens;
}

// The ids of the matcher's mask, ascending.
inline std::vector<int32_t> AllowedIds(verifier::GrammarMatcher& matcher, int32_t num_tokens = kEndOfBytes + 1) {
  std::vector<uint32_t> mask((num_tokens + 31) / 32, ~0u);
  matcher.FillMask(mask);
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < num_tokens; ++id) {
    if ((mask[id / 32] >> id % 32 & 1) != 0) ids.push_back(id);
  }
  return ids;
}

// Whether the grammar takes the whole text, byte by byte, and lets it end there.
inline bool Matches(std::shared_ptr<const verifier::Grammar> grammar, const std::string& text) {
  verifier::GrammarMatcher matcher(std::move(grammar));
  for (const char c : text) {
    if (!matcher.Accept(static_cast<unsigned char>(c))) return false;
  }
  return matcher.Accept(kEndOfBytes);
}

}  // namespace foretoken::testing
