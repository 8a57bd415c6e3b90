// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/unicode/char_set.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "kernels/check.h"

namespace foretoken::tokenizer {
namespace {

constexpr char32_t kLastCodePoint = 0x10ffff;

CharSet CategorySet(absl::string_view prefix) {
  const std::vector<absl::string_view> names = absl::StrSplit(kCategoryNames, ' ');
  std::vector<CodePointRange> ranges;
  for (size_t i = 0; i < kCategoryRuns.size(); ++i) {
    if (!absl::StartsWith(names[kCategoryRuns[i] & 0x1f], prefix)) continue;
    const char32_t first = kCategoryRuns[i] >> 5;
    const char32_t last = i + 1 < kCategoryRuns.size() ? (kCategoryRuns[i + 1] >> 5) - 1 : kLastCodePoint;
    if (!ranges.empty() && ranges.back().last + 1 == first) {
      ranges.back().last = last;
    } else {
      ranges.push_back({first, last});
    }
  }
  return CharSet(ranges);
}

}  // namespace

void CharSet::Add(const CharSet& other) {
  std::vector<CodePointRange> all;
  all.reserve(ranges_.size() + other.ranges_.size());
  std::merge(ranges_.begin(), ranges_.end(), other.ranges_.begin(), other.ranges_.end(), std::back_inserter(all),
             [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  ranges_.clear();
  for (const CodePointRange& range : all) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

bool CharSet::Contains(char32_t c) const {
  const auto behind = std::upper_bound(ranges_.begin(), ranges_.end(), c,
                                       [](char32_t value, const CodePointRange& range) { return value < range.first; });
  return behind != ranges_.begin() && c <= (behind - 1)->last;
}

CharSet CharSet::Complement() const {
  CharSet complement;
  char32_t next = 0;
  for (const CodePointRange& range : ranges_) {
    if (next < range.first) complement.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) complement.ranges_.push_back({next, kLastCodePoint});
  return complement;
}

CharSet CharSet::Intersection(const CharSet& other) const {
  CharSet outside = Complement();
  outside.Add(other.Complement());
  return outside.Complement();
}

std::optional<CharSet> PropertySet(absl::string_view name) {
  const bool is_category =
      name.size() <= 2 && !name.empty() && (absl::StrContains(kCategoryNames, name) && absl::ascii_isupper(name[0]));
  if (is_category) return CategorySet(name);
  const auto named =
      std::find_if(kNamedSets.begin(), kNamedSets.end(), [name](const NamedSet& set) { return set.name == name; });
  if (named == kNamedSets.end()) return std::nullopt;
  return CharSet(named->ranges);
}

CharSet WordSet() {
  CharSet set = *PropertySet("Alphabetic");
  for (const char* more : {"M", "Nd", "Pc"}) set.Add(*PropertySet(more));
  return set;
}

CharSet WhiteSpaceSet() { return *PropertySet("White_Space"); }

}  // namespace foretoken::tokenizer
