// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/normalizer.h"

#include <algorithm>
#include <iterator>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/unicode/nfc.h"

namespace foretoken::tokenizer {
namespace {

constexpr double kNfcGrowth = 3;  // Unicode's bound for UTF-8

// Applies a step to the ranges and to the text between them, one after another. `is_cut` says whether the step treats
// what lies before a place and what lies behind it apart. A range shrinks until it ends at such places.
RangedText ApplyApart(const RangedText& in, absl::FunctionRef<bool(size_t at)> is_cut,
                      absl::FunctionRef<std::string(absl::string_view part)> apply) {
  const absl::string_view text = in.text;
  RangedText out;
  size_t done = 0;
  for (auto [begin, end] : in.ranges) {
    while (begin < end && !is_cut(begin)) ++begin;
    while (begin < end && !is_cut(end)) --end;
    if (begin == end) continue;
    out.text += apply(text.substr(done, begin - done));
    const size_t out_begin = out.text.size();
    out.text += apply(text.substr(begin, end - begin));
    out.ranges.push_back({.begin = out_begin, .end = out.text.size()});
    done = end;
  }
  out.text += apply(text.substr(done));
  return out;
}

RangedText ApplyStep(const Nfc&, const RangedText& in) {
  return ApplyApart(
      in, [&](size_t at) { return IsNfcBoundary(in.text, at); }, ToNfc);
}

RangedText ApplyStep(const Prepend& step, const RangedText& in) {
  if (in.text.empty()) return in;
  RangedText out{.text = absl::StrCat(step.prefix, in.text)};
  for (const auto& [begin, end] : in.ranges) {
    out.ranges.push_back({.begin = begin == 0 ? 0 : begin + step.prefix.size(), .end = end + step.prefix.size()});
  }
  return out;
}

RangedText ApplyStep(const ReplaceAll& step, const RangedText& in) {
  std::vector<size_t> matches;  // where they begin
  for (size_t at = 0; !in.ranges.empty() && (at = in.text.find(step.pattern, at)) != std::string::npos;) {
    matches.push_back(at);
    at += step.pattern.size();
  }
  const auto is_cut = [&](size_t at) {
    const auto next = std::lower_bound(matches.begin(), matches.end(), at);
    return next == matches.begin() || *std::prev(next) + step.pattern.size() <= at;
  };
  return ApplyApart(in, is_cut, [&](absl::string_view part) { return Apply(step, part); });
}

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

absl::Status StepBounds::Take(const JsonValue& step, double growth) {
  growth_ *= std::max(1.0, growth);
  if (++num_steps_ > kMaxSteps) return step.Error(absl::StrCat("expected at most ", kMaxSteps, " steps"));
  if (growth_ > kMaxGrowth) {
    return step.Error(absl::StrCat("the steps could make a text ", growth_, " times as long: expected at most ",
                                   kMaxGrowth, " times"));
  }
  return absl::OkStatus();
}

double Growth(const ReplaceAll& replace) {
  return static_cast<double>(replace.content.size()) / static_cast<double>(replace.pattern.size());
}

std::string Apply(const ReplaceAll& replace, absl::string_view text) {
  return absl::StrReplaceAll(text, {{replace.pattern, replace.content}});
}

absl::StatusOr<Normalizer> Normalizer::FromJson(const std::optional<JsonValue>& json) {
  FT_ASSIGN_OR_RETURN(const std::vector<JsonValue> steps, JsonValue::Steps(json, "normalizers"));
  Normalizer normalizer;
  StepBounds bounds;
  for (const JsonValue& step : steps) {
    FT_ASSIGN_OR_RETURN(const std::string type, step.StringMember("type"));
    if (type == "NFC") {
      FT_RETURN_IF_ERROR(bounds.Take(step, kNfcGrowth));
      normalizer.steps_.emplace_back(Nfc{});
    } else if (type == "Prepend") {
      FT_ASSIGN_OR_RETURN(std::string prefix, InsertedText(step, "prepend"));
      FT_RETURN_IF_ERROR(bounds.Take(step, 1));
      normalizer.steps_.emplace_back(Prepend{.prefix = std::move(prefix)});
    } else if (type == "Replace") {
      FT_ASSIGN_OR_RETURN(ReplaceAll replace, ReplaceFromJson(step));
      FT_RETURN_IF_ERROR(bounds.Take(step, Growth(replace)));
      normalizer.steps_.emplace_back(std::move(replace));
    } else {
      return step.Error(
          absl::StrCat("normalizer \"", type, "\" is not supported; NFC, Prepend, Replace, Sequence are"));
    }
  }
  return normalizer;
}

RangedText Normalizer::Apply(RangedText text) const {
  for (const auto& step : steps_) {
    text = std::visit([&](const auto& kind) { return ApplyStep(kind, text); }, step);
  }
  return text;
}

}  // namespace foretoken::tokenizer
