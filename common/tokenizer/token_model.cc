// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/token_model.h"

#include <optional>

#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace foretoken::tokenizer {
namespace {

// Old files have no type. In them the form of the vocabulary shows the type.
bool IsUnigram(const JsonValue& model) {
  const auto type = model.json().find("type");
  if (type != model.json().end() && !type->is_null()) return *type == "Unigram";
  const auto vocab = model.json().find("vocab");
  return vocab != model.json().end() && vocab->is_array();
}

}  // namespace

absl::Status TokenModel::CheckSupported(const JsonValue& model) {
  FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> type, model.OptionalMember("type"));
  if (type && type->json() != "BPE" && type->json() != "Unigram") {
    return type->Expected("\"BPE\" or \"Unigram\", the supported models");
  }
  return IsUnigram(model) ? absl::OkStatus() : Bpe::CheckSupported(model);
}

absl::StatusOr<TokenIds> TokenModel::ReadIds(const JsonValue& model) {
  FT_ASSIGN_OR_RETURN(const JsonValue vocab, model.Member("vocab"));
  return IsUnigram(model) ? TokenIdsFromList(vocab) : TokenIdsFromObject(vocab);
}

absl::StatusOr<TokenModel> TokenModel::FromJson(const JsonValue& model, const TokenIds& ids,
                                                const ReservedIds& reserved, bool is_byte_level) {
  if (!IsUnigram(model)) {
    FT_ASSIGN_OR_RETURN(Bpe bpe, Bpe::FromJson(model, ids, reserved, is_byte_level));
    return TokenModel(std::move(bpe));
  }
  if (is_byte_level) return model.Error("a Unigram model behind the pre-tokenizer ByteLevel is not supported");
  FT_ASSIGN_OR_RETURN(Unigram unigram, Unigram::FromJson(model, ids, reserved));
  return TokenModel(std::move(unigram));
}

absl::Status TokenModel::Encode(absl::string_view word, std::vector<int32_t>& out) const {
  if (const auto* unigram = std::get_if<Unigram>(&kind_)) return unigram->Encode(word, out);
  std::get<Bpe>(kind_).Encode(word, out);
  return absl::OkStatus();
}

}  // namespace foretoken::tokenizer
