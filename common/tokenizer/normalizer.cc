// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/normalizer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/unicode/nfc.h"

namespace foretoken::tokenizer {
namespace {

std::string ApplyStep(const Nfc&, absl::string_view text) { return ToNfc(text); }
std::string ApplyStep(const Prepend& step, absl::string_view text) {
  return text.empty() ? std::string() : absl::StrCat(step.prefix, text);
}
std::string ApplyStep(const ReplaceAll& step, absl::string_view text) { return Apply(step, text); }

// The text that a step inserts. A long one could turn a request into gigabytes; real ones are one character.
absl::StatusOr<std::string> InsertedText(const JsonValue& step, const char* name) {
  constexpr size_t kMaxBytes = 16;
  FT_ASSIGN_OR_RETURN(const JsonValue member, step.Member(name));
  FT_ASSIGN_OR_RETURN(std::string text, member.String());
  if (text.size() > kMaxBytes) return member.Expected(absl::StrCat("at most ", kMaxBytes, " bytes"));
  return text;
}

}  // namespace

absl::StatusOr<ReplaceAll> ReplaceFromJson(const JsonValue& step) {
  FT_ASSIGN_OR_RETURN(const JsonValue pattern, step.Member("pattern"));
  FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> text, pattern.OptionalMember("String"));
  if (!text) return pattern.Expected("{\"String\": ...}");
  ReplaceAll replace;
  FT_ASSIGN_OR_RETURN(replace.pattern, text->String());
  if (replace.pattern.empty()) return text->Expected("a string that is not empty");
  FT_ASSIGN_OR_RETURN(replace.content, InsertedText(step, "content"));
  return replace;
}

std::string Apply(const ReplaceAll& replace, absl::string_view text) {
  return absl::StrReplaceAll(text, {{replace.pattern, replace.content}});
}

absl::StatusOr<Normalizer> Normalizer::FromJson(const std::optional<JsonValue>& json) {
  FT_ASSIGN_OR_RETURN(const std::vector<JsonValue> steps, JsonValue::Steps(json, "normalizers"));
  Normalizer normalizer;
  for (const JsonValue& step : steps) {
    FT_ASSIGN_OR_RETURN(const std::string type, step.StringMember("type"));
    if (type == "NFC") {
      normalizer.steps_.emplace_back(Nfc{});
    } else if (type == "Prepend") {
      FT_ASSIGN_OR_RETURN(std::string prefix, InsertedText(step, "prepend"));
      normalizer.steps_.emplace_back(Prepend{.prefix = std::move(prefix)});
    } else if (type == "Replace") {
      FT_ASSIGN_OR_RETURN(ReplaceAll replace, ReplaceFromJson(step));
      normalizer.steps_.emplace_back(std::move(replace));
    } else {
      return step.Error(
          absl::StrCat("normalizer \"", type, "\" is not supported; NFC, Prepend, Replace, Sequence are"));
    }
  }
  return normalizer;
}

std::string Normalizer::Apply(absl::string_view text) const {
  std::string current(text);
  for (const auto& step : steps_) {
    current = std::visit([&](const auto& kind) { return ApplyStep(kind, current); }, step);
  }
  return current;
}

}  // namespace foretoken::tokenizer
