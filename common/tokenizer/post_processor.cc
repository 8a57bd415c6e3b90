// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/post_processor.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace foretoken::tokenizer {
namespace {

// The ids of a {"SpecialToken": {"id": NAME}} piece: template.special_tokens[NAME].ids.
absl::StatusOr<std::vector<int32_t>> IdsOfPiece(const JsonValue& processor, const JsonValue& piece,
                                                const Vocabulary& vocabulary) {
  FT_ASSIGN_OR_RETURN(const std::string name, piece.StringMember("id"));
  FT_ASSIGN_OR_RETURN(const JsonValue special_tokens, processor.Member("special_tokens"));
  FT_ASSIGN_OR_RETURN(const JsonValue special_token, special_tokens.Member(name.c_str()));
  FT_ASSIGN_OR_RETURN(const JsonValue list, special_token.Member("ids"));
  FT_ASSIGN_OR_RETURN(const std::vector<JsonValue> elements, list.Elements());
  std::vector<int32_t> ids;
  for (const JsonValue& element : elements) {
    FT_ASSIGN_OR_RETURN(const int32_t id, element.TokenId());
    if (vocabulary.Find(id) == nullptr) return element.Expected("the id of a token");
    ids.push_back(id);
  }
  return ids;
}

// Pieces can name one special token of many ids again and again. Real ones have one or two.
absl::Status CheckSize(const JsonValue& at, const Surroundings& surroundings) {
  constexpr size_t kMaxTokens = 64;
  const size_t num_tokens = surroundings.before.size() + surroundings.after.size();
  if (num_tokens <= kMaxTokens) return absl::OkStatus();
  return at.Error(absl::StrCat("expected at most ", kMaxTokens, " tokens around a text, got more"));
}

absl::StatusOr<Surroundings> FromTemplate(const JsonValue& processor, const Vocabulary& vocabulary) {
  FT_ASSIGN_OR_RETURN(const JsonValue single, processor.Member("single"));
  FT_ASSIGN_OR_RETURN(const std::vector<JsonValue> pieces, single.Elements());
  Surroundings surroundings;
  bool text_seen = false;
  for (const JsonValue& piece : pieces) {
    FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> text, piece.OptionalMember("Sequence"));
    if (text) {
      if (text_seen) return single.Error("expected the text once, got it twice");
      text_seen = true;
      continue;
    }
    FT_ASSIGN_OR_RETURN(const JsonValue special, piece.Member("SpecialToken"));
    FT_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, IdsOfPiece(processor, special, vocabulary));
    std::vector<int32_t>& side = text_seen ? surroundings.after : surroundings.before;
    side.insert(side.end(), ids.begin(), ids.end());
    FT_RETURN_IF_ERROR(CheckSize(single, surroundings));
  }
  if (!text_seen) return single.Error("expected the text once, got it never");
  return surroundings;
}

// bos_token is "<s>" or {"content": "<s>", ...}.
absl::StatusOr<std::vector<int32_t>> IdsFromConfig(const JsonValue& config, const char* flag, const char* token,
                                                   const Vocabulary& vocabulary) {
  FT_ASSIGN_OR_RETURN(const bool wanted, config.BoolOr(flag, false));
  if (!wanted) return std::vector<int32_t>();
  FT_ASSIGN_OR_RETURN(const JsonValue member, config.Member(token));
  FT_ASSIGN_OR_RETURN(const std::string spelling,
                      member.json().is_object() ? member.StringMember("content") : member.String());
  const std::optional<int32_t> id = vocabulary.FindId(spelling);
  if (!id) return member.Expected("a token of tokenizer.json");
  return std::vector<int32_t>{*id};
}

}  // namespace

absl::StatusOr<std::optional<Surroundings>> SurroundingsFromPostProcessor(
    const std::optional<JsonValue>& post_processor, const Vocabulary& vocabulary) {
  FT_ASSIGN_OR_RETURN(const std::vector<JsonValue> steps, JsonValue::Steps(post_processor, "processors"));
  std::optional<Surroundings> all;
  for (const JsonValue& step : steps) {
    FT_ASSIGN_OR_RETURN(const std::string type, step.StringMember("type"));
    if (type == "ByteLevel") continue;
    if (type != "TemplateProcessing") {
      return step.Error(
          absl::StrCat("post-processor \"", type, "\" is not supported; TemplateProcessing, ByteLevel, Sequence are"));
    }
    FT_ASSIGN_OR_RETURN(Surroundings own, FromTemplate(step, vocabulary));
    if (!all) all.emplace();
    // A later step goes around the tokens of earlier steps.
    all->before.insert(all->before.begin(), own.before.begin(), own.before.end());
    all->after.insert(all->after.end(), own.after.begin(), own.after.end());
    FT_RETURN_IF_ERROR(CheckSize(step, *all));
  }
  return all;
}

absl::StatusOr<Surroundings> SurroundingsFromConfig(const JsonValue& config, const Vocabulary& vocabulary) {
  Surroundings surroundings;
  FT_ASSIGN_OR_RETURN(surroundings.before, IdsFromConfig(config, "add_bos_token", "bos_token", vocabulary));
  FT_ASSIGN_OR_RETURN(surroundings.after, IdsFromConfig(config, "add_eos_token", "eos_token", vocabulary));
  return surroundings;
}

}  // namespace foretoken::tokenizer
