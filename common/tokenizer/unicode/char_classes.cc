// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/unicode/char_classes.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "common/tokenizer/unicode/unicode_tables.h"
#include "common/tokenizer/unicode/utf8.h"
#include "kernels/check.h"

namespace foretoken::tokenizer {
namespace {

constexpr size_t kMaxSymbols = 256;
constexpr uint8_t kLineFeed = '\n';

// Returns the code points at which runs begin. No set begins or ends inside a run.
std::vector<char32_t> RunBegins(std::span<const CharSet> sets) {
  std::vector<char32_t> begins = {0, kLineFeed, kLineFeed + 1};
  for (const CharSet& set : sets) {
    for (const CodePointRange& range : set.ranges()) {
      begins.push_back(range.first);
      if (range.last + 1 < kNumCodePoints) begins.push_back(range.last + 1);
    }
  }
  std::sort(begins.begin(), begins.end());
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  return begins;
}

// For each run, the sets that hold it: one character per set.
std::vector<std::string> Memberships(std::span<const CharSet> sets, std::span<const char32_t> begins) {
  std::vector<std::string> memberships(begins.size(), std::string(sets.size(), '-'));
  for (size_t set_idx = 0; set_idx < sets.size(); ++set_idx) {
    size_t run = 0;
    for (const CodePointRange& range : sets[set_idx].ranges()) {
      while (begins[run] < range.first) ++run;
      for (; run < begins.size() && begins[run] <= range.last; ++run) memberships[run][set_idx] = '+';
    }
  }
  return memberships;
}

}  // namespace

absl::StatusOr<CharClasses> CharClasses::Make(std::span<const CharSet> sets) {
  const std::vector<char32_t> begins = RunBegins(sets);
  const std::vector<std::string> memberships = Memberships(sets, begins);
  CharClasses classes;
  classes.symbols_.resize(sets.size());
  absl::flat_hash_map<absl::string_view, uint8_t> symbols;
  std::vector<uint8_t> symbol_of_run(begins.size());
  size_t next_symbol = 0;
  for (size_t run = 0; run < begins.size(); ++run) {
    const bool is_line_feed = begins[run] == kLineFeed;
    const auto known = symbols.find(memberships[run]);
    if (!is_line_feed && known != symbols.end()) {
      symbol_of_run[run] = known->second;
      continue;
    }
    if (next_symbol == kLineFeed) ++next_symbol;
    if (!is_line_feed && next_symbol == kMaxSymbols) {
      return absl::InvalidArgumentError("it distinguishes more than 256 kinds of characters");
    }
    symbol_of_run[run] = is_line_feed ? kLineFeed : static_cast<uint8_t>(next_symbol++);
    if (!is_line_feed) symbols.emplace(memberships[run], symbol_of_run[run]);
    for (size_t set_idx = 0; set_idx < sets.size(); ++set_idx) {
      if (memberships[run][set_idx] == '+') classes.symbols_[set_idx] += static_cast<char>(symbol_of_run[run]);
    }
  }
  classes.AddPages(symbol_of_run, begins);
  return classes;
}

void CharClasses::AddPages(std::span<const uint8_t> symbol_of_run, std::span<const char32_t> run_begins) {
  absl::flat_hash_map<std::string, uint16_t> known;
  size_t run = 0;
  for (char32_t begin = 0; begin < kNumCodePoints; begin += 256) {
    Page page;
    while (run + 1 < run_begins.size() && run_begins[run + 1] <= begin) ++run;
    page.fill(symbol_of_run[run]);
    const bool is_one_run = run + 1 == run_begins.size() || run_begins[run + 1] >= begin + 256;
    for (char32_t i = 0; i < 256 && !is_one_run; ++i) {
      while (run + 1 < run_begins.size() && run_begins[run + 1] <= begin + i) ++run;
      page[i] = symbol_of_run[run];
    }
    const auto [it, is_new] =
        known.try_emplace(std::string(page.begin(), page.end()), static_cast<uint16_t>(pages_.size()));
    if (is_new) pages_.push_back(page);
    page_of_.push_back(it->second);
  }
}

SpelledText CharClasses::Spell(absl::string_view text) const {
  FT_CHECK(text.size() < std::numeric_limits<uint32_t>::max());
  SpelledText spelled;
  const bool is_ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  spelled.symbols.reserve(text.size());
  const Page& first_page = pages_[page_of_[0]];
  if (is_ascii) {
    for (const char c : text) spelled.symbols += static_cast<char>(first_page[static_cast<uint8_t>(c)]);
    return spelled;
  }
  spelled.offsets.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeUtf8(text, at);
    spelled.symbols += static_cast<char>(SymbolOf(c.value));
    spelled.offsets.push_back(static_cast<uint32_t>(at));
    at += c.num_bytes;
  }
  spelled.offsets.push_back(static_cast<uint32_t>(text.size()));
  return spelled;
}

}  // namespace foretoken::tokenizer
