// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/bpe.h"

#include <algorithm>
#include <queue>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/byte_level.h"
#include "common/tokenizer/unicode/utf8.h"
#include "nlohmann/json.hpp"

namespace foretoken::tokenizer {
namespace {

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

struct MergePair {
  std::string left;
  std::string right;
};

// "a b" or ["a", "b"].
absl::StatusOr<MergePair> MergePairFromJson(const JsonValue& json) {
  constexpr absl::string_view kExpected = "\"LEFT RIGHT\" or [\"LEFT\", \"RIGHT\"]";
  if (json.json().is_array()) {
    FT_ASSIGN_OR_RETURN(const std::vector<JsonValue> sides, json.Elements());
    if (sides.size() != 2) return json.Expected(kExpected);
    FT_ASSIGN_OR_RETURN(std::string left, sides[0].String());
    FT_ASSIGN_OR_RETURN(std::string right, sides[1].String());
    return MergePair{.left = std::move(left), .right = std::move(right)};
  }
  FT_ASSIGN_OR_RETURN(const std::string text, json.String());
  const std::vector<std::string> sides = absl::StrSplit(text, ' ');
  if (sides.size() != 2) return json.Expected(kExpected);
  return MergePair{.left = sides[0], .right = sides[1]};
}

absl::StatusOr<int32_t> MergedId(const JsonValue& merge, const TokenIds& ids, absl::string_view token) {
  const auto it = ids.find(token);
  if (it == ids.end()) return merge.Error(absl::StrCat("token \"", token, "\" is not in the vocabulary"));
  return it->second;
}

}  // namespace

absl::Status Bpe::CheckSupported(const JsonValue& model) {
  FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> dropout, model.OptionalMember("dropout"));
  if (dropout && dropout->json() != 0.0) return dropout->Expected("none: a random encoding is not supported");
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> affix, model.OptionalMember(name));
    if (affix && affix->json() != "") return affix->Expected("none: affixes are not supported");
  }
  return absl::OkStatus();
}

// Best first: the lowest rank, then the leftmost.
struct Bpe::Candidate {
  uint32_t rank;
  int32_t left;  // index of a symbol
  int32_t id;

  bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
};

absl::StatusOr<Bpe> Bpe::FromJson(const JsonValue& model, const TokenIds& ids, const ReservedIds& reserved,
                                  bool is_byte_level) {
  Bpe bpe;
  bpe.is_byte_level_ = is_byte_level;
  FT_ASSIGN_OR_RETURN(bpe.byte_fallback_, model.BoolOr("byte_fallback", false));
  FT_ASSIGN_OR_RETURN(bpe.fuse_unknown_, model.BoolOr("fuse_unk", false));
  FT_ASSIGN_OR_RETURN(bpe.ignore_merges_, model.BoolOr("ignore_merges", false));
  FT_RETURN_IF_ERROR(bpe.ReadUnknown(model, ids));
  FT_ASSIGN_OR_RETURN(const JsonValue merges, model.Member("merges"));
  FT_RETURN_IF_ERROR(bpe.ReadMerges(merges, ids, reserved));
  bpe.ids_.reserve(ids.size());
  for (const auto& [token, id] : ids) {
    const std::optional<std::string> word = is_byte_level ? BytesOfSpelling(token) : token;
    if (word) bpe.ids_.emplace(*word, id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string spelling =
        is_byte_level ? std::string(1, static_cast<char>(byte)) : absl::StrFormat("<0x%02X>", byte);
    if (const auto it = bpe.ids_.find(spelling); it != bpe.ids_.end()) bpe.byte_ids_[byte] = it->second;
  }
  absl::erase_if(bpe.ids_, [&](const auto& entry) { return reserved.contains(entry.second); });
  return bpe;
}

absl::Status Bpe::ReadUnknown(const JsonValue& model, const TokenIds& ids) {
  FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> json, model.OptionalMember("unk_token"));
  if (!json) return absl::OkStatus();
  FT_ASSIGN_OR_RETURN(const std::string token, json->String());
  FT_ASSIGN_OR_RETURN(unknown_id_, MergedId(*json, ids, token));
  return absl::OkStatus();
}

absl::Status Bpe::ReadMerges(const JsonValue& merges, const TokenIds& ids, const ReservedIds& reserved) {
  FT_ASSIGN_OR_RETURN(const std::vector<JsonValue> elements, merges.Elements());
  merges_.reserve(elements.size());
  for (size_t rank = 0; rank < elements.size(); ++rank) {
    FT_ASSIGN_OR_RETURN(const MergePair pair, MergePairFromJson(elements[rank]));
    FT_ASSIGN_OR_RETURN(const int32_t left, MergedId(elements[rank], ids, pair.left));
    FT_ASSIGN_OR_RETURN(const int32_t right, MergedId(elements[rank], ids, pair.right));
    FT_ASSIGN_OR_RETURN(const int32_t merged, MergedId(elements[rank], ids, absl::StrCat(pair.left, pair.right)));
    if (reserved.contains(merged)) continue;
    merges_[PairKey(left, right)] = {.rank = static_cast<uint32_t>(rank), .id = merged};
  }
  return absl::OkStatus();
}

const Bpe::Merge* Bpe::FindMerge(int32_t left, int32_t right) const {
  const auto it = merges_.find(PairKey(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

void Bpe::Encode(absl::string_view word, std::vector<int32_t>& out) const {
  if (ignore_merges_) {
    if (const auto it = ids_.find(word); it != ids_.end()) {
      out.push_back(it->second);
      return;
    }
  }
  std::vector<int32_t> symbols;
  symbols.reserve(word.size());
  AppendSymbols(word, symbols);
  MergeAll(symbols);
  out.insert(out.end(), symbols.begin(), symbols.end());
}

void Bpe::AppendSymbols(absl::string_view word, std::vector<int32_t>& symbols) const {
  bool unknown_pending = false;  // waits so that fuse_unk can fuse it with the next one
  for (size_t i = 0; i < word.size();) {
    const absl::string_view character = word.substr(i, is_byte_level_ ? 1 : Utf8Length(word[i]));
    i += character.size();
    const auto it = ids_.find(character);
    if (it != ids_.end()) {
      if (unknown_pending) symbols.push_back(*unknown_id_);
      unknown_pending = false;
      symbols.push_back(it->second);
      continue;
    }
    const auto id_of_byte = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
    if (byte_fallback_ && std::all_of(character.begin(), character.end(), id_of_byte)) {
      for (const char byte : character) symbols.push_back(*id_of_byte(byte));
      continue;
    }
    if (!unknown_id_) continue;
    if (unknown_pending && !fuse_unknown_) symbols.push_back(*unknown_id_);
    unknown_pending = true;
  }
  if (unknown_pending) symbols.push_back(*unknown_id_);
}

void Bpe::MergeAll(std::vector<int32_t>& ids) const {
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<Symbol> symbols(ids.size());
  std::vector<Candidate> initial;
  for (int32_t i = 0; i < count; ++i) {
    symbols[i] = {.id = ids[i], .previous = i - 1, .next = i + 1 < count ? i + 1 : -1};
    if (i + 1 == count) continue;
    if (const Merge* merge = FindMerge(ids[i], ids[i + 1])) initial.push_back({merge->rank, i, merge->id});
  }
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(initial));
  constexpr int32_t kGone = -1;
  const auto propose = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    if (const Merge* merge = FindMerge(symbols[left].id, symbols[right].id)) queue.push({merge->rank, left, merge->id});
  };
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    if (left.id == kGone || left.next < 0) continue;
    const int32_t right_idx = left.next;
    Symbol& right = symbols[right_idx];
    const Merge* merge = FindMerge(left.id, right.id);
    if (merge == nullptr || merge->id != best.id) continue;  // one of the two symbols has changed since
    left.id = best.id;
    left.next = right.next;
    right.id = kGone;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    propose(left.previous, best.left);
    propose(best.left, left.next);
  }
  ids.clear();
  for (int32_t i = 0; i >= 0 && i < count; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace foretoken::tokenizer
