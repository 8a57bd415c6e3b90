// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/byte_level.h"
#include "common/tokenizer/unicode/char_set.h"
#include "common/tokenizer/unicode/utf8.h"

namespace foretoken::tokenizer {
namespace {

// The pattern with which ByteLevel cuts, unless use_regex is false.
constexpr absl::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Segment {
  Span span;
  bool matched;
};

std::vector<Segment> Segments(absl::string_view text, const std::vector<Span>& matches, bool invert) {
  std::vector<Segment> segments;
  segments.reserve(2 * matches.size() + 1);
  size_t done = 0;
  for (const Span& match : matches) {
    if (done < match.begin) segments.push_back({.span = {done, match.begin}, .matched = invert});
    segments.push_back({.span = match, .matched = !invert});
    done = match.end;
  }
  if (done < text.size()) segments.push_back({.span = {done, text.size()}, .matched = invert});
  return segments;
}

// Joins each matched segment to its left neighbour. Of two matched segments in a row the second stays alone.
void MergeWithPrevious(std::vector<Segment>& segments) {
  std::vector<Segment> merged;
  bool previous_matched = false;
  for (const Segment& segment : segments) {
    if (segment.matched && !previous_matched && !merged.empty()) {
      merged.back().span.end = segment.span.end;
    } else {
      merged.push_back(segment);
    }
    previous_matched = segment.matched;
  }
  segments = std::move(merged);
}

// The same with the right neighbour.
void MergeWithNext(std::vector<Segment>& segments) {
  std::vector<Segment> merged;
  bool next_matched = false;
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    if (segment->matched && !next_matched && !merged.empty()) {
      merged.back().span.begin = segment->span.begin;
    } else {
      merged.push_back(*segment);
    }
    next_matched = segment->matched;
  }
  std::reverse(merged.begin(), merged.end());
  segments = std::move(merged);
}

// Joins two neighbours if both matched, or if neither did.
void MergeAlike(std::vector<Segment>& segments) {
  std::vector<Segment> merged;
  for (const Segment& segment : segments) {
    if (!merged.empty() && merged.back().matched == segment.matched) {
      merged.back().span.end = segment.span.end;
    } else {
      merged.push_back(segment);
    }
  }
  segments = std::move(merged);
}

struct CutArgs {
  const Pattern& pattern;
  SplitBehavior behavior;
  bool invert = false;
};

absl::Status Cut(absl::string_view word, const CutArgs& args, std::vector<absl::string_view>& out) {
  FT_ASSIGN_OR_RETURN(const std::vector<Span> matches, args.pattern.FindAll(word));
  std::vector<Segment> segments = Segments(word, matches, args.invert);
  if (args.behavior == SplitBehavior::kMergedWithPrevious) MergeWithPrevious(segments);
  if (args.behavior == SplitBehavior::kMergedWithNext) MergeWithNext(segments);
  if (args.behavior == SplitBehavior::kContiguous) MergeAlike(segments);
  for (const Segment& segment : segments) {
    if (args.behavior == SplitBehavior::kRemoved && segment.matched) continue;
    if (segment.span.begin < segment.span.end) {
      out.push_back(word.substr(segment.span.begin, segment.span.end - segment.span.begin));
    }
  }
  return absl::OkStatus();
}

// Each ApplyStep replaces one word by the words that the step makes of it. `is_first`: the word stands at the text's
// start.
absl::Status ApplyStep(const SplitStep& step, absl::string_view word, bool, Words& out) {
  return Cut(word, {.pattern = step.pattern, .behavior = step.behavior, .invert = step.invert}, out.words);
}

absl::Status ApplyStep(const MetaspaceStep& step, absl::string_view word, bool is_first, Words& out) {
  std::string text = absl::StrReplaceAll(word, {{" ", step.replacement}});
  const bool wanted =
      step.prepend_scheme == PrependScheme::kAlways || (step.prepend_scheme == PrependScheme::kFirst && is_first);
  if (wanted && !absl::StartsWith(text, step.replacement)) text.insert(0, step.replacement);
  const std::string& kept = out.changed.emplace_back(std::move(text));
  if (!step.split) {
    out.words.push_back(kept);
    return absl::OkStatus();
  }
  return Cut(kept, {.pattern = *step.split, .behavior = SplitBehavior::kMergedWithNext}, out.words);
}

absl::Status ApplyStep(const PrefixSpaceStep&, absl::string_view word, bool, Words& out) {
  out.words.push_back(absl::StartsWith(word, " ") ? word : out.changed.emplace_back(absl::StrCat(" ", word)));
  return absl::OkStatus();
}

absl::Status ApplyStep(const SpellBytesStep&, absl::string_view word, bool, Words& out) {
  out.words.push_back(out.changed.emplace_back(SpellingOfBytes(word)));
  return absl::OkStatus();
}

absl::StatusOr<Pattern> PatternFromJson(const JsonValue& json) {
  FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> regex, json.OptionalMember("Regex"));
  FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> literal, json.OptionalMember("String"));
  if (!regex && !literal) return json.Expected("{\"Regex\": ...} or {\"String\": ...}");
  const JsonValue& value = regex ? *regex : *literal;
  FT_ASSIGN_OR_RETURN(const std::string text, value.String());
  if (literal && !regex) return Pattern::Literal(text);
  absl::StatusOr<Pattern> pattern = Pattern::Compile(text);
  if (!pattern.ok()) return value.Error(pattern.status().message());
  return pattern;
}

absl::StatusOr<SplitBehavior> BehaviorFromJson(const JsonValue& json) {
  constexpr std::pair<absl::string_view, SplitBehavior> kBehaviors[] = {
      {"Isolated", SplitBehavior::kIsolated},
      {"Removed", SplitBehavior::kRemoved},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  FT_ASSIGN_OR_RETURN(const std::string name, json.String());
  for (const auto& [known, behavior] : kBehaviors) {
    if (name == known) return behavior;
  }
  return json.Expected("Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
}

absl::StatusOr<SplitStep> SplitFromJson(const JsonValue& step) {
  FT_ASSIGN_OR_RETURN(const JsonValue pattern_json, step.Member("pattern"));
  FT_ASSIGN_OR_RETURN(Pattern pattern, PatternFromJson(pattern_json));
  FT_ASSIGN_OR_RETURN(const bool invert, step.BoolOr("invert", false));
  FT_ASSIGN_OR_RETURN(const JsonValue behavior_json, step.Member("behavior"));
  FT_ASSIGN_OR_RETURN(const SplitBehavior behavior, BehaviorFromJson(behavior_json));
  return SplitStep{.pattern = std::move(pattern), .behavior = behavior, .invert = invert};
}

absl::StatusOr<SplitStep> DigitsFromJson(const JsonValue& step) {
  FT_ASSIGN_OR_RETURN(const bool individual, step.BoolOr("individual_digits", false));
  return SplitStep{.pattern = Pattern::AnyOf(CharSet(kNumeric)),
                   .behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                   .invert = false};
}

absl::StatusOr<SplitStep> PunctuationFromJson(const JsonValue& step) {
  SplitStep split = {
      .pattern = Pattern::AnyOf(CharSet(kPunctuation)), .behavior = SplitBehavior::kIsolated, .invert = false};
  FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> behavior, step.OptionalMember("behavior"));
  if (behavior) {
    FT_ASSIGN_OR_RETURN(split.behavior, BehaviorFromJson(*behavior));
  }
  return split;
}

absl::StatusOr<MetaspaceStep> MetaspaceFromJson(const JsonValue& step) {
  MetaspaceStep metaspace;
  FT_ASSIGN_OR_RETURN(metaspace.replacement, MetaspaceReplacementFromJson(step));
  FT_ASSIGN_OR_RETURN(metaspace.prepend_scheme, PrependSchemeFromJson(step));
  FT_ASSIGN_OR_RETURN(const bool split, step.BoolOr("split", true));
  if (split) metaspace.split = Pattern::Literal(metaspace.replacement);
  return metaspace;
}

}  // namespace

absl::StatusOr<std::string> MetaspaceReplacementFromJson(const JsonValue& step) {
  FT_ASSIGN_OR_RETURN(const JsonValue json, step.Member("replacement"));
  FT_ASSIGN_OR_RETURN(std::string replacement, json.String());
  if (replacement.empty() || Utf8Length(replacement[0]) != replacement.size()) return json.Expected("one character");
  return replacement;
}

absl::StatusOr<PrependScheme> PrependSchemeFromJson(const JsonValue& step) {
  FT_ASSIGN_OR_RETURN(const bool add_prefix_space, step.BoolOr("add_prefix_space", true));
  FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> json, step.OptionalMember("prepend_scheme"));
  if (!json) return add_prefix_space ? PrependScheme::kAlways : PrependScheme::kNever;
  FT_ASSIGN_OR_RETURN(const std::string name, json->String());
  if (name != "never" && !add_prefix_space) return json->Expected("\"never\", as add_prefix_space is false");
  if (name == "always") return PrependScheme::kAlways;
  if (name == "first") return PrependScheme::kFirst;
  if (name == "never") return PrependScheme::kNever;
  return json->Expected("\"always\", \"first\" or \"never\"");
}

absl::StatusOr<PreTokenizer> PreTokenizer::FromJson(const std::optional<JsonValue>& json) {
  FT_ASSIGN_OR_RETURN(const std::vector<JsonValue> steps, JsonValue::Steps(json, "pretokenizers"));
  PreTokenizer result;
  for (const JsonValue& step : steps) FT_RETURN_IF_ERROR(result.AddStep(step));
  return result;
}

absl::Status PreTokenizer::AddStep(const JsonValue& step) {
  FT_ASSIGN_OR_RETURN(const std::string type, step.StringMember("type"));
  if (type == "Split" || type == "Digits" || type == "Punctuation") {
    if (is_byte_level_ && !cuts_spelling_) {
      steps_.emplace_back(SpellBytesStep{});
      cuts_spelling_ = true;
    }
    FT_ASSIGN_OR_RETURN(SplitStep split, type == "Split"    ? SplitFromJson(step)
                                         : type == "Digits" ? DigitsFromJson(step)
                                                            : PunctuationFromJson(step));
    steps_.emplace_back(std::move(split));
    return absl::OkStatus();
  }
  if (is_byte_level_) return step.Error(absl::StrCat("a step \"", type, "\" after ByteLevel is not supported"));
  if (type == "Metaspace") {
    FT_ASSIGN_OR_RETURN(MetaspaceStep metaspace, MetaspaceFromJson(step));
    steps_.emplace_back(std::move(metaspace));
    return absl::OkStatus();
  }
  if (type == "ByteLevel") return AddByteLevel(step);
  return step.Error(absl::StrCat(
      "pre-tokenizer \"", type, "\" is not supported; Split, Digits, Punctuation, ByteLevel, Metaspace, Sequence are"));
}

absl::Status PreTokenizer::AddByteLevel(const JsonValue& step) {
  is_byte_level_ = true;
  FT_ASSIGN_OR_RETURN(const bool add_prefix_space, step.BoolOr("add_prefix_space", true));
  FT_ASSIGN_OR_RETURN(const bool use_regex, step.BoolOr("use_regex", true));
  if (add_prefix_space) steps_.emplace_back(PrefixSpaceStep{});
  if (!use_regex) return absl::OkStatus();
  FT_ASSIGN_OR_RETURN(Pattern gpt2, Pattern::Compile(kGpt2Pattern));
  steps_.emplace_back(SplitStep{.pattern = std::move(gpt2), .behavior = SplitBehavior::kIsolated, .invert = false});
  return absl::OkStatus();
}

absl::StatusOr<Words> PreTokenizer::Apply(absl::string_view part, bool is_first) const {
  Words current;
  if (!part.empty()) current.words.push_back(part);
  for (const auto& step : steps_) {
    const std::vector<absl::string_view> previous = std::move(current.words);
    current.words.clear();
    for (size_t i = 0; i < previous.size(); ++i) {
      const bool word_is_first = is_first && i == 0;
      FT_RETURN_IF_ERROR(
          std::visit([&](const auto& kind) { return ApplyStep(kind, previous[i], word_is_first, current); }, step));
    }
    // A Split may have removed the text's start.
    const bool is_split = std::holds_alternative<SplitStep>(step);
    if (is_split && (current.words.empty() || current.words[0].data() != previous[0].data())) is_first = false;
  }
  if (cuts_spelling_) {
    for (absl::string_view& word : current.words) word = current.changed.emplace_back(*BytesOfSpelling(word));
  }
  return current;
}

}  // namespace foretoken::tokenizer
