// SPDX-License-Identifier: Apache-2.0
#include "common/gguf/score_merges.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/unicode/utf8.h"

namespace foretoken::gguf {
namespace {

using nlohmann::json;

constexpr const char* kScores = "tokenizer.ggml.scores";
constexpr size_t kMaxTokenBytes = 1024;       // the longest known token has some 200
constexpr size_t kMaxMergesBytes = 64 << 20;  // the spellings in all merges; Llama 2 has less than a MiB

struct Merge {
  absl::string_view left;
  absl::string_view right;
  double score = 0;
  size_t num_left = 0;  // characters
  size_t num_right = 0;
  size_t left_id = 0;
  size_t right_id = 0;
};

using Ids = absl::flat_hash_map<absl::string_view, size_t>;

// Adds every way to cut a token into two others.
void AddCuts(absl::string_view token, double score, const Ids& ids, std::vector<Merge>& merges) {
  size_t num_characters = 0;
  for (size_t at = 0; at < token.size(); at += tokenizer::Utf8Length(token[at])) ++num_characters;
  size_t num_left = 1;
  for (size_t at = token.empty() ? 0 : tokenizer::Utf8Length(token[0]); at < token.size();
       at += tokenizer::Utf8Length(token[at]), ++num_left) {
    const auto left = ids.find(token.substr(0, at)), right = ids.find(token.substr(at));
    if (left == ids.end() || right == ids.end()) continue;
    merges.push_back({.left = left->first,
                      .right = right->first,
                      .score = score,
                      .num_left = num_left,
                      .num_right = num_characters - num_left,
                      .left_id = left->second,
                      .right_id = right->second});
  }
}

}  // namespace

absl::StatusOr<json> MergesFromScores(const Metadata& metadata, std::span<const ListedToken> tokens) {
  FT_ASSIGN_OR_RETURN(const std::vector<double> scores, metadata.RequiredList<double>(kScores));
  if (scores.size() != tokens.size()) {
    return metadata.Error(kScores, "expected ", tokens.size(), " elements, one per token, got ", scores.size());
  }
  Ids ids;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].kind != TokenKind::kNormal) continue;
    if (tokens[id].spelling.size() > kMaxTokenBytes) {
      return metadata.Error("tokenizer.ggml.tokens", "element ", id, ": expected at most ", kMaxTokenBytes,
                            " bytes, got ", tokens[id].spelling.size());
    }
    ids.emplace(tokens[id].spelling, id);
  }
  std::vector<Merge> merges;
  size_t num_bytes = 0;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].kind != TokenKind::kNormal) continue;
    const size_t num_before = merges.size();
    AddCuts(tokens[id].spelling, scores[id], ids, merges);
    num_bytes += (merges.size() - num_before) * (tokens[id].spelling.size() + sizeof(Merge));
    if (num_bytes > kMaxMergesBytes) {
      return metadata.Error("tokenizer.ggml.tokens", "the tokens are made of each other in too many ways");
    }
  }
  const auto order = [](const Merge& merge) {
    return std::tuple(-merge.score, -static_cast<int64_t>(merge.num_left), -static_cast<int64_t>(merge.num_right),
                      merge.left_id, merge.right_id);
  };
  std::ranges::stable_sort(merges, {}, order);
  json list = json::array();
  for (const Merge& merge : merges) list.push_back({std::string(merge.left), std::string(merge.right)});
  return list;
}

}  // namespace foretoken::gguf
