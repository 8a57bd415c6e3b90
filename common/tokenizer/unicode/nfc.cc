// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/unicode/nfc.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/utf8_bytes.h"
#include "common/tokenizer/unicode/unicode_tables.h"
#include "common/tokenizer/unicode/utf8.h"

namespace foretoken::tokenizer {
namespace {

constexpr char32_t kFirstMark = 0x300;  // each character below is its own NFC and combines with no character before it

// Hangul, with the names of section 3.12.
constexpr char32_t kSBase = 0xac00, kLBase = 0x1100, kVBase = 0x1161, kTBase = 0x11a7;
constexpr char32_t kLCount = 19, kVCount = 21, kTCount = 28;
constexpr char32_t kSCount = kLCount * kVCount * kTCount;

struct Character {
  char32_t value;
  uint8_t combining_class;
};

uint64_t PairKey(char32_t first, char32_t second) { return uint64_t{first} << 32 | second; }

// The tables in forms that are quick to read.
class Tables {
 public:
  Tables() : blocks_(kNumCodePoints >> 8) {
    for (const Decomposition& entry : kDecompositions) {
      decompositions_.emplace(entry.composite, &entry);
      if (entry.composes) {
        composites_.emplace(PairKey(entry.first, entry.second), entry.composite);
        Mark(entry.second);
      } else {
        Mark(entry.composite);
      }
    }
    for (size_t i = 0; i < kCombiningClassRuns.size(); ++i) {
      const auto combining_class = static_cast<uint8_t>(kCombiningClassRuns[i] & 0xff);
      if (combining_class == 0) continue;
      for (char32_t c = kCombiningClassRuns[i] >> 8; c < kCombiningClassRuns[i + 1] >> 8; ++c) {
        combining_classes_.emplace(c, combining_class);
        Mark(c);
      }
    }
    for (char32_t c = kVBase; c < kVBase + kVCount; ++c) Mark(c);
    for (char32_t c = kTBase + 1; c < kTBase + kTCount; ++c) Mark(c);
  }

  // True if NFC changes the character, or may move it or join it with others.
  bool IsActive(char32_t c) const {
    const std::vector<bool>& block = blocks_[c >> 8];
    return !block.empty() && block[c & 0xff];
  }
  uint8_t CombiningClass(char32_t c) const {
    const auto it = combining_classes_.find(c);
    return it == combining_classes_.end() ? 0 : it->second;
  }
  const Decomposition* FindDecomposition(char32_t c) const {
    const auto it = decompositions_.find(c);
    return it == decompositions_.end() ? nullptr : it->second;
  }
  std::optional<char32_t> Compose(char32_t first, char32_t second) const {
    if (first >= kLBase && first < kLBase + kLCount && second >= kVBase && second < kVBase + kVCount) {
      return kSBase + ((first - kLBase) * kVCount + (second - kVBase)) * kTCount;
    }
    const bool is_open_syllable = first >= kSBase && first < kSBase + kSCount && (first - kSBase) % kTCount == 0;
    if (is_open_syllable && second > kTBase && second < kTBase + kTCount) return first + (second - kTBase);
    const auto it = composites_.find(PairKey(first, second));
    if (it == composites_.end()) return std::nullopt;
    return it->second;
  }

 private:
  void Mark(char32_t c) {
    blocks_[c >> 8].resize(256);
    blocks_[c >> 8][c & 0xff] = true;
  }

  absl::flat_hash_map<char32_t, const Decomposition*> decompositions_;
  absl::flat_hash_map<uint64_t, char32_t> composites_;
  absl::flat_hash_map<char32_t, uint8_t> combining_classes_;
  std::vector<std::vector<bool>> blocks_;
};

const Tables& GetTables() {
  static const Tables* const tables = new Tables();
  return *tables;
}

void AppendDecomposed(char32_t c, const Tables& tables, std::vector<Character>& out) {
  if (c >= kSBase && c < kSBase + kSCount) {
    const char32_t index = c - kSBase;
    out.push_back({kLBase + index / (kVCount * kTCount), 0});
    out.push_back({kVBase + index % (kVCount * kTCount) / kTCount, 0});
    if (index % kTCount != 0) out.push_back({kTBase + index % kTCount, 0});
    return;
  }
  const Decomposition* parts = c < 0x80 ? nullptr : tables.FindDecomposition(c);
  if (parts == nullptr) {
    out.push_back({c, c < kFirstMark ? uint8_t{0} : tables.CombiningClass(c)});
    return;
  }
  AppendDecomposed(parts->first, tables, out);
  if (parts->second != 0) AppendDecomposed(parts->second, tables, out);
}

void SortMarks(std::vector<Character>& characters) {
  const auto is_mark = [](const Character& c) { return c.combining_class != 0; };
  for (auto run = characters.begin(); run != characters.end();) {
    run = std::find_if(run, characters.end(), is_mark);
    const auto end = std::find_if_not(run, characters.end(), is_mark);
    std::stable_sort(run, end,
                     [](const Character& a, const Character& b) { return a.combining_class < b.combining_class; });
    run = end;
  }
}

// A character joins the last starter unless a starter, or a character of its own class, stands between.
void Compose(const Tables& tables, std::vector<Character>& characters) {
  size_t size = 0;
  std::optional<size_t> starter;
  for (const Character& c : characters) {
    const bool is_adjacent = starter && *starter + 1 == size;
    const bool is_reachable = starter && (is_adjacent || characters[size - 1].combining_class < c.combining_class);
    if (is_reachable) {
      if (const std::optional<char32_t> joined = tables.Compose(characters[*starter].value, c.value)) {
        characters[*starter].value = *joined;
        continue;
      }
    }
    if (c.combining_class == 0) starter = size;
    characters[size++] = c;
  }
  characters.resize(size);
}

}  // namespace

bool IsNfcBoundary(absl::string_view text, size_t at) {
  if (at == 0 || at == text.size()) return true;
  if (base::ContinuesCharacter(text[at])) return false;  // inside a character
  const char32_t next = DecodeUtf8(text, at).value;
  return next < kFirstMark || !GetTables().IsActive(next);
}

std::string ToNfc(absl::string_view text) {
  const Tables& tables = GetTables();
  bool is_active = false;
  for (size_t i = 0; i < text.size() && !is_active;) {
    const CodePoint c = DecodeUtf8(text, i);
    is_active = c.value >= kFirstMark && tables.IsActive(c.value);
    i += c.num_bytes;
  }
  if (!is_active) return std::string(text);
  std::vector<Character> characters;
  characters.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = DecodeUtf8(text, i);
    AppendDecomposed(c.value, tables, characters);
    i += c.num_bytes;
  }
  SortMarks(characters);
  Compose(tables, characters);
  std::string out;
  out.reserve(text.size());
  for (const Character& c : characters) AppendUtf8(c.value, out);
  return out;
}

}  // namespace foretoken::tokenizer
