// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/unigram.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/unicode/utf8.h"
#include "nlohmann/json.hpp"

namespace foretoken::tokenizer {
namespace {

constexpr size_t kMaxTokenBytes = 1024;
constexpr double kUnknownPenalty = 10;

absl::StatusOr<std::vector<double>> ReadScores(const JsonValue& model) {
  FT_ASSIGN_OR_RETURN(const JsonValue vocab, model.Member("vocab"));
  FT_ASSIGN_OR_RETURN(const std::vector<JsonValue> entries, vocab.Elements());
  std::vector<double> scores;
  scores.reserve(entries.size());
  for (const JsonValue& entry : entries) {
    FT_ASSIGN_OR_RETURN(const std::vector<JsonValue> parts, entry.Elements());
    FT_ASSIGN_OR_RETURN(const double score, parts[1].Number());
    scores.push_back(score);
  }
  return scores;
}

}  // namespace

absl::StatusOr<Unigram> Unigram::FromJson(const JsonValue& model, TokenIds ids, const ReservedIds& reserved) {
  FT_ASSIGN_OR_RETURN(std::vector<double> scores, ReadScores(model));
  for (const auto& [token, id] : ids) {
    if (token.size() <= kMaxTokenBytes) continue;
    return model.Error(
        absl::StrCat("vocab[", id, "]: expected a token of at most ", kMaxTokenBytes, " bytes, got ", token.size()));
  }
  std::array<std::optional<int32_t>, 256> byte_ids;
  for (int byte = 0; byte < 256; ++byte) {
    const auto it = ids.find(absl::StrFormat("<0x%02X>", byte));
    if (it != ids.end()) byte_ids[byte] = it->second;
  }
  absl::erase_if(ids, [&](const auto& entry) { return reserved.contains(entry.second); });
  std::vector<std::pair<std::string, int32_t>> entries(ids.begin(), ids.end());
  Unigram unigram(std::move(ids), ByteTrie(std::move(entries)));
  double lowest = std::numeric_limits<double>::infinity();
  for (const double score : scores) lowest = std::min(lowest, score);
  unigram.scores_ = std::move(scores);
  unigram.byte_ids_ = byte_ids;
  unigram.unknown_score_ = lowest - kUnknownPenalty;
  FT_ASSIGN_OR_RETURN(unigram.byte_fallback_, model.BoolOr("byte_fallback", false));
  FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> unknown, model.OptionalMember("unk_id"));
  if (unknown) {
    FT_ASSIGN_OR_RETURN(unigram.unknown_id_, unknown->TokenId());
    const bool is_token = static_cast<size_t>(*unigram.unknown_id_) < unigram.scores_.size();
    if (!is_token) return unknown->Expected("the id of a token");
  }
  return unigram;
}

absl::Status Unigram::Encode(absl::string_view word, std::vector<int32_t>& out) const {
  FT_ASSIGN_OR_RETURN(const std::vector<BestEnding> endings, FindEndings(word));
  for (const Piece& piece : FuseUnknown(word, endings)) {
    if (piece.id == unknown_id_) {
      AppendUnknown(piece.text, out);
    } else {
      out.push_back(piece.id);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Unigram::BestEnding>> Unigram::FindEndings(absl::string_view word) const {
  std::vector<BestEnding> endings(word.size() + 1);
  for (size_t begin = 0; begin < word.size();) {
    const double score_before = endings[begin].score;
    const auto propose = [&](size_t length, double score, int32_t id) {
      BestEnding& ending = endings[begin + length];
      const double sum = score + score_before;
      if (!ending.id || sum > ending.score) ending = {.score = sum, .begin = begin, .id = id};
    };
    const size_t character_length = Utf8Length(word[begin]);
    bool is_character_token = false;
    trie_.ForEachPrefix(word.substr(begin), [&](size_t length, int32_t id) {
      propose(length, scores_[id], id);
      is_character_token = is_character_token || length == character_length;
    });
    if (!is_character_token) {
      if (!unknown_id_) {
        return absl::InvalidArgumentError(absl::StrCat("character \"", word.substr(begin, character_length),
                                                       "\" is no token, and the tokenizer has no unknown token"));
      }
      propose(character_length, unknown_score_, *unknown_id_);
    }
    begin += character_length;
  }
  return endings;
}

std::vector<Unigram::Piece> Unigram::FuseUnknown(absl::string_view word, const std::vector<BestEnding>& endings) const {
  std::vector<Piece> pieces;
  for (size_t end = word.size(); end > 0; end = endings[end].begin) {
    const BestEnding& ending = endings[end];
    const absl::string_view text = word.substr(ending.begin, end - ending.begin);
    const bool continues_unknown = !pieces.empty() && pieces.back().id == unknown_id_ && ending.id == unknown_id_;
    if (continues_unknown) {
      pieces.back().text = absl::string_view(text.data(), text.size() + pieces.back().text.size());
    } else {
      pieces.push_back({.text = text, .id = *ending.id});
    }
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

void Unigram::AppendUnknown(absl::string_view text, std::vector<int32_t>& out) const {
  if (const auto it = ids_.find(text); it != ids_.end()) {
    out.push_back(it->second);
    return;
  }
  const auto id_of_byte = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
  if (byte_fallback_ && std::all_of(text.begin(), text.end(), id_of_byte)) {
    for (const char byte : text) out.push_back(*id_of_byte(byte));
    return;
  }
  out.push_back(*unknown_id_);
}

}  // namespace foretoken::tokenizer
