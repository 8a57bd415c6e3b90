// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/decoder.h"

#include <cctype>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/byte_level.h"
#include "common/tokenizer/pre_tokenizer.h"

namespace foretoken::tokenizer {
namespace {

// "<0x0A>"
std::optional<char> ByteOf(absl::string_view spelling) {
  if (spelling.size() != 6 || !absl::StartsWith(spelling, "<0x") || spelling[5] != '>') return std::nullopt;
  if (!std::isxdigit(static_cast<uint8_t>(spelling[3])) || !std::isxdigit(static_cast<uint8_t>(spelling[4]))) {
    return std::nullopt;
  }
  return absl::HexStringToBytes(spelling.substr(3, 2))[0];
}

}  // namespace

absl::StatusOr<Decoder> Decoder::FromJson(const JsonValue& json) {
  FT_ASSIGN_OR_RETURN(const std::vector<JsonValue> steps, JsonValue::Steps(json, "decoders"));
  Decoder decoder;
  StepBounds bounds;
  for (const JsonValue& step : steps) {
    FT_ASSIGN_OR_RETURN(const std::string type, step.StringMember("type"));
    const bool stands_alone = type == "ByteLevel" || type == "Metaspace";
    if (stands_alone && steps.size() > 1) {
      return step.Error(absl::StrCat("decoder \"", type, "\" beside others is not supported"));
    }
    if (type == "ByteLevel") {
      decoder.kind_ = Kind::kByteLevel;
    } else if (type == "Metaspace") {
      decoder.kind_ = Kind::kMetaspace;
      FT_ASSIGN_OR_RETURN(decoder.metaspace_, MetaspaceReplacementFromJson(step));
      FT_ASSIGN_OR_RETURN(const PrependScheme scheme, PrependSchemeFromJson(step));
      decoder.drop_first_space_ = scheme != PrependScheme::kNever;
    } else {
      FT_RETURN_IF_ERROR(decoder.AddStep(step, bounds));
    }
  }
  return decoder;
}

absl::Status Decoder::AddStep(const JsonValue& step, StepBounds& bounds) {
  FT_ASSIGN_OR_RETURN(const std::string type, step.StringMember("type"));
  const bool is_stripping = num_stripped_ > 0;
  if (type == "Replace" && !byte_fallback_ && !fuse_ && !is_stripping) {
    FT_ASSIGN_OR_RETURN(ReplaceAll replace, ReplaceFromJson(step));
    FT_RETURN_IF_ERROR(bounds.Take(step, Growth(replace)));
    replaces_.push_back(std::move(replace));
  } else if (type == "ByteFallback" && !byte_fallback_ && !fuse_ && !is_stripping) {
    byte_fallback_ = true;
  } else if (type == "Fuse" && !fuse_ && !is_stripping) {
    fuse_ = true;
  } else if (type == "Strip" && fuse_ && !is_stripping) {
    FT_ASSIGN_OR_RETURN(const int32_t stop, step.CountOr("stop", 0));
    if (stop != 0) return step.Error("Strip at the end (stop > 0) is not supported");
    FT_ASSIGN_OR_RETURN(num_stripped_, step.CountOr("start", 0));
    FT_ASSIGN_OR_RETURN(const JsonValue content, step.Member("content"));
    FT_ASSIGN_OR_RETURN(stripped_, content.String());
    const bool is_one_character = !stripped_.empty() && Utf8Length(stripped_[0]) == stripped_.size();
    if (!is_one_character) return content.Expected("one character");
  } else {
    return step.Error(absl::StrCat("decoder \"", type, "\" is not supported here; ByteLevel, Metaspace, and Replace, ",
                                   "ByteFallback, Fuse, Strip in this order are"));
  }
  return absl::OkStatus();
}

std::string Decoder::BytesOf(absl::string_view spelling) const {
  switch (kind_) {
    case Kind::kByteLevel: {
      std::optional<std::string> bytes = BytesOfSpelling(spelling);
      return bytes ? *std::move(bytes) : std::string(spelling);
    }
    case Kind::kMetaspace:
      return absl::StrReplaceAll(spelling, {{metaspace_, " "}});
    case Kind::kSteps:
      break;
  }
  std::string text(spelling);
  for (const ReplaceAll& replace : replaces_) text = Apply(replace, text);
  const std::optional<char> byte = byte_fallback_ ? ByteOf(text) : std::nullopt;
  return byte ? std::string(1, *byte) : text;
}

DecodeState Decoder::Start(bool continues_text) const {
  const Replacement replacement = kind_ == Kind::kSteps ? Replacement::kPerByte : Replacement::kPerSequence;
  return {.assembler = Utf8Assembler(replacement),
          .no_token_yet = !continues_text,
          .num_strippable = continues_text ? 0 : num_stripped_};
}

// A text token needs no case of its own beside byte tokens: its first byte continues no character, so it ends the
// waiting bytes, and it ends with a whole character.
void Decoder::Append(const Token& token, DecodeState& state, std::string& out) const {
  const size_t from = out.size();
  if (kind_ == Kind::kMetaspace && drop_first_space_ && state.no_token_yet) {
    state.assembler.Append(absl::StrReplaceAll(token.spelling, {{metaspace_, ""}}), out);
  } else {
    state.assembler.Append(token.bytes, out);
  }
  state.no_token_yet = false;
  Strip(state, out, from);
}

void Decoder::Flush(DecodeState& state, std::string& out) const {
  const size_t from = out.size();
  state.assembler.Flush(out);
  Strip(state, out, from);
}

void Decoder::Strip(DecodeState& state, std::string& out, size_t from) const {
  size_t end = from;
  while (state.num_strippable > 0 && end < out.size()) {
    if (out.compare(end, stripped_.size(), stripped_) != 0) {
      state.num_strippable = 0;
      break;
    }
    end += stripped_.size();
    --state.num_strippable;
  }
  out.erase(from, end - from);
}

}  // namespace foretoken::tokenizer
