// SPDX-License-Identifier: Apache-2.0
#include "common/gguf/token_list.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace foretoken::gguf {
namespace {

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kKinds = "tokenizer.ggml.token_type";
constexpr const char* kModel = "tokenizer.ggml.model";

absl::Status AddKinds(const Metadata& metadata, std::vector<ListedToken>& tokens) {
  FT_ASSIGN_OR_RETURN(const auto kinds, metadata.OptionalList<int64_t>(kKinds));
  if (!kinds) return absl::OkStatus();
  if (kinds->size() != tokens.size()) {
    return metadata.Error(kKinds, "expected ", tokens.size(), " elements as in ", kTokens, ", got ", kinds->size());
  }
  for (size_t id = 0; id < tokens.size(); ++id) {
    const int64_t kind = (*kinds)[id];
    if (kind < static_cast<int64_t>(TokenKind::kNormal) || kind > static_cast<int64_t>(TokenKind::kByte)) {
      return metadata.Error(kKinds, "element ", id, ": expected 1 to 6, got ", kind);
    }
    tokens[id].kind = static_cast<TokenKind>(kind);
  }
  return absl::OkStatus();
}

absl::Status CheckSpellings(const Metadata& metadata, const std::vector<ListedToken>& tokens) {
  absl::flat_hash_map<absl::string_view, size_t> ids;
  ids.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].kind == TokenKind::kUnused) continue;
    const auto [other, is_new] = ids.emplace(tokens[id].spelling, id);
    if (is_new) continue;
    return metadata.Error(kTokens, "elements ", other->second, " and ", id, " are both \"",
                          absl::Utf8SafeCHexEscape(tokens[id].spelling), "\"");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ListedToken>> ReadTokens(const Metadata& metadata) {
  FT_ASSIGN_OR_RETURN(std::vector<std::string> spellings, metadata.RequiredList<std::string>(kTokens));
  std::vector<ListedToken> tokens;
  tokens.reserve(spellings.size());
  for (std::string& spelling : spellings) tokens.push_back({.spelling = std::move(spelling)});
  FT_RETURN_IF_ERROR(AddKinds(metadata, tokens));
  FT_RETURN_IF_ERROR(CheckSpellings(metadata, tokens));
  return tokens;
}

absl::StatusOr<TokenizerModel> ReadTokenizerModel(const Metadata& metadata) {
  FT_ASSIGN_OR_RETURN(const std::string model, metadata.Required<std::string>(kModel));
  if (model == "gpt2") return TokenizerModel::kByteLevel;
  if (model == "llama") return TokenizerModel::kSentencePiece;
  return metadata.Error(kModel, "expected gpt2 or llama, got ", model);
}

absl::StatusOr<SpecialIds> ReadSpecialIds(const Metadata& metadata) {
  FT_ASSIGN_OR_RETURN(const TokenizerModel model, ReadTokenizerModel(metadata));
  FT_ASSIGN_OR_RETURN(const int64_t num_tokens, metadata.RequiredListSize(kTokens));
  SpecialIds ids;
  if (model == TokenizerModel::kSentencePiece) ids = {.bos = 1, .eos = 2, .unknown = 0};
  for (const auto& [name, id] : {std::pair("bos", &ids.bos),
                                 {"eos", &ids.eos},
                                 {"eot", &ids.eot},
                                 {"eom", &ids.eom},
                                 {"unknown", &ids.unknown},
                                 {"seperator", &ids.separator},  // spelled so in the format
                                 {"padding", &ids.padding}}) {
    const std::string key = absl::StrCat("tokenizer.ggml.", name, "_token_id");
    FT_ASSIGN_OR_RETURN(const auto given, metadata.Optional<int64_t>(key));
    if (given) *id = *given;
    if (id->has_value() && (**id < 0 || **id >= num_tokens)) {
      return metadata.Error(key, "expected an id below the number of tokens ", num_tokens, ", got ", **id);
    }
  }
  return ids;
}

}  // namespace foretoken::gguf
