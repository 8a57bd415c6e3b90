// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/utf8.h"
#include "kernels/check.h"

namespace foretoken::tokenizer {
namespace {

// Below U+0300 (first byte 0xCC) every character is its own NFC and combines with nothing before it.
bool IsSurelyNfc(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xcc; });
}

int CombiningClass(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// utf8proc sorts marks by exchanging neighbours, which is quadratic in a run's length; only its tables and its (linear)
// composition are used.
std::vector<utf8proc_int32_t> DecomposeCanonically(absl::string_view text) {
  std::vector<utf8proc_int32_t> out;
  out.reserve(text.size());
  std::array<utf8proc_int32_t, 32> parts{};  // the longest canonical decomposition has 4
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = DecodeUtf8(text, i);
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), parts.data(), parts.size(),
                                static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), nullptr);
    FT_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()));
    out.insert(out.end(), parts.begin(), parts.begin() + count);
    i += c.num_bytes;
  }
  for (auto run = out.begin(); run != out.end();) {
    run = std::find_if(run, out.end(), [](auto c) { return CombiningClass(c) != 0; });
    const auto end = std::find_if(run, out.end(), [](auto c) { return CombiningClass(c) == 0; });
    std::stable_sort(run, end, [](auto a, auto b) { return CombiningClass(a) < CombiningClass(b); });
    run = end;
  }
  return out;
}

std::string ToNfc(absl::string_view text) {
  if (IsSurelyNfc(text)) return std::string(text);
  std::vector<utf8proc_int32_t> characters = DecomposeCanonically(text);
  const auto count = utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                                              static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  FT_CHECK(count >= 0);
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) AppendUtf8(static_cast<char32_t>(characters[i]), out);
  return out;
}

std::string ApplyStep(const Nfc&, absl::string_view text) { return ToNfc(text); }
std::string ApplyStep(const Prepend& step, absl::string_view text) {
  return text.empty() ? std::string() : absl::StrCat(step.prefix, text);
}
std::string ApplyStep(const ReplaceAll& step, absl::string_view text) { return Apply(step, text); }

// What a step puts into a text. A long one could make gigabytes of a request; real ones are a character.
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
