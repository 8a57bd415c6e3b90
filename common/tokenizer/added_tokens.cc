// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/added_tokens.h"

#include <algorithm>

#include "common/base/utf8_bytes.h"
#include "common/tokenizer/unicode/utf8.h"

namespace foretoken::tokenizer {
namespace {

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x9 && c <= 0xd) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// The start of the character that ends just before `at`.
size_t PreviousCharacter(absl::string_view text, size_t at) {
  do {
    --at;
  } while (base::ContinuesCharacter(text[at]));
  return at;
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

std::vector<std::pair<std::string, int32_t>> Numbered(const std::vector<std::string>& patterns) {
  std::vector<std::pair<std::string, int32_t>> entries;
  for (const std::string& pattern : patterns) entries.emplace_back(pattern, static_cast<int32_t>(entries.size()));
  return entries;
}

// Unicode's word characters (UTS 18): the word characters of patterns, and the join controls.
CharSet WordsAndJoiners() {
  CharSet set = WordSet();
  set.Add({0x200c, 0x200d});
  return set;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens, const std::vector<std::string>& patterns)
    : tokens_(std::move(tokens)), trie_(Numbered(patterns)) {
  if (std::ranges::any_of(tokens_, &AddedToken::single_word)) word_characters_ = WordsAndJoiners();
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::LongestAt(absl::string_view text, size_t at,
                                                                     MayParse may_parse, Hidden hidden) const {
  std::optional<Match> longest;
  trie_.ForEachPrefix(text.substr(at), [&](size_t length, int32_t token_idx) {
    if (hidden == Hidden::kByNone && tokens_[token_idx].special && !may_parse(at, at + length)) return;
    longest = Match{.token_idx = static_cast<size_t>(token_idx), .end = at + length};
  });
  return longest;
}

bool AddedTokenMatcher::HasWordBeside(absl::string_view text, size_t begin, size_t end) const {
  const auto is_word = [&](size_t at) { return word_characters_.Contains(DecodeUtf8(text, at).value); };
  return (begin > 0 && is_word(PreviousCharacter(text, begin))) || (end < text.size() && is_word(end));
}

std::vector<TextPart> AddedTokenMatcher::Split(absl::string_view text, bool parse_special) const {
  return Split(
      text, [&](size_t, size_t) { return parse_special; }, Hidden::kByUnparsed);
}

std::vector<TextPart> AddedTokenMatcher::Split(absl::string_view text,
                                               std::span<const TextRange> special_ranges) const {
  const auto lies_in_range = [&](size_t begin, size_t end) {
    const auto after = std::upper_bound(special_ranges.begin(), special_ranges.end(), begin,
                                        [](size_t at, const TextRange& range) { return at < range.begin; });
    return after != special_ranges.begin() && end <= std::prev(after)->end;
  };
  return Split(text, lies_in_range, Hidden::kByNone);
}

std::vector<TextPart> AddedTokenMatcher::Split(absl::string_view text, MayParse may_parse, Hidden hidden) const {
  std::vector<TextPart> parts;
  size_t done = 0;  // parts has everything before it
  for (size_t at = 0; at < text.size();) {
    const std::optional<Match> match =
        trie_.HasKeyThatStartsWith(text[at]) ? LongestAt(text, at, may_parse, hidden) : std::nullopt;
    if (!match) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = match->end;
    at = end;
    const AddedToken& token = tokens_[match->token_idx];
    if (token.special && !may_parse(begin, end)) continue;
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
