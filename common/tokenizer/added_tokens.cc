// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "common/tokenizer/utf8.h"

namespace foretoken::tokenizer {
namespace {

uint64_t Edge(uint32_t node, char byte) { return uint64_t{node} << 8 | static_cast<uint8_t>(byte); }

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x9 && c <= 0xd) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// Unicode's word characters (UTS 18): alphabetic, marks, decimal digits, connectors, join controls.
bool IsWord(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:  // the rest of Alphabetic: circled and squared letters
      return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
             (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
  }
}

// The start of the character that ends just before `at`.
size_t PreviousCharacter(absl::string_view text, size_t at) {
  do {
    --at;
  } while ((static_cast<uint8_t>(text[at]) & 0xc0) == 0x80);
  return at;
}

bool HasWordBeside(absl::string_view text, size_t begin, size_t end) {
  return (begin > 0 && IsWord(DecodeUtf8(text, PreviousCharacter(text, begin)).value)) ||
         (end < text.size() && IsWord(DecodeUtf8(text, end).value));
}

size_t SkipWhiteSpaceLeft(absl::string_view text, size_t at, size_t floor) {
  while (at > floor) {
    const size_t previous = PreviousCharacter(text, at);
    if (!IsWhiteSpace(DecodeUtf8(text, previous).value)) break;
    at = previous;
  }
  return std::max(at, floor);
}

size_t SkipWhiteSpaceRight(absl::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint c = DecodeUtf8(text, at);
    if (!IsWhiteSpace(c.value)) break;
    at += c.num_bytes;
  }
  return at;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens, const std::vector<std::string>& patterns)
    : tokens_(std::move(tokens)) {
  uint32_t num_nodes = 1;  // 0 is the root
  for (size_t i = 0; i < patterns.size(); ++i) {
    uint32_t node = 0;
    for (const char byte : patterns[i]) {
      const auto [edge, is_new] = edges_.try_emplace(Edge(node, byte), num_nodes);
      if (is_new) ++num_nodes;
      node = edge->second;
    }
    ends_.try_emplace(node, i);
    starts_[static_cast<uint8_t>(patterns[i][0])] = true;
  }
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::LongestAt(absl::string_view text, size_t at) const {
  std::optional<Match> longest;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto edge = edges_.find(Edge(node, text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (const auto end = ends_.find(node); end != ends_.end()) longest = Match{.token_idx = end->second, .end = i + 1};
  }
  return longest;
}

std::vector<TextPart> AddedTokenMatcher::Split(absl::string_view text, bool parse_special) const {
  std::vector<TextPart> parts;
  size_t done = 0;  // everything before it is in parts
  for (size_t at = 0; at < text.size();) {
    const std::optional<Match> match = starts_[static_cast<uint8_t>(text[at])] ? LongestAt(text, at) : std::nullopt;
    if (!match) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = match->end;
    at = end;
    const AddedToken& token = tokens_[match->token_idx];
    if (token.special && !parse_special) continue;
    if (token.single_word && HasWordBeside(text, begin, end)) continue;
    if (token.lstrip) begin = SkipWhiteSpaceLeft(text, begin, done);
    if (token.rstrip) end = SkipWhiteSpaceRight(text, end);
    if (done < begin) parts.push_back({.id = std::nullopt, .text = text.substr(done, begin - done)});
    parts.push_back({.id = token.id, .text = {}});
    done = end;
  }
  if (done < text.size()) parts.push_back({.id = std::nullopt, .text = text.substr(done)});
  return parts;
}

}  // namespace foretoken::tokenizer
