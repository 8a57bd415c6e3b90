// SPDX-License-Identifier: Apache-2.0
// Cuts a text into words, which are encoded one by one: the "pre_tokenizer" of tokenizer.json.
//
// Supported: Split (a string or a pattern, in every behavior), Digits, Punctuation, ByteLevel, Metaspace in its old
// (add_prefix_space) and new (prepend_scheme, split) spelling, and a Sequence of them. After ByteLevel only Split,
// Digits and Punctuation may follow. These then cut the bytes' spelling (byte_level.h), as in Hugging Face: a byte 0xB2
// inside a character is spelled as a superscript two, which is a digit. Without a pre-tokenizer the whole text is one
// word. Others are refused by name.
// Errors: FromJson returns INVALID_ARGUMENT, which names the step and its pattern; Apply as Pattern::FindAll.
// Threads: immutable.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_value.h"
#include "common/tokenizer/pattern.h"

namespace foretoken::tokenizer {

// The treatment of the matches of a Split. With `invert`, the text between the matches counts as matched.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct SplitStep {
  Pattern pattern;
  SplitBehavior behavior;
  bool invert;
};

enum class PrependScheme { kAlways, kFirst, kNever };  // before every part of the text, before the first part, nowhere

// Spaces become `replacement`. Where the scheme says so, the step adds a replacement in front, unless the text starts
// with one. A word starts at every replacement.
struct MetaspaceStep {
  std::string replacement;  // one character
  PrependScheme prepend_scheme;
  std::optional<Pattern> split;
};

struct PrefixSpaceStep {};  // of ByteLevel
struct SpellBytesStep {};   // for ByteLevel, if other steps follow it

// Read "replacement" and the prepend scheme, in either spelling, for pre-tokenizers and decoders.
absl::StatusOr<std::string> MetaspaceReplacementFromJson(const JsonValue& step);
absl::StatusOr<PrependScheme> PrependSchemeFromJson(const JsonValue& step);

// Views into the given text, or into `changed` if a step changed it.
struct Words {
  std::vector<absl::string_view> words;  // none of them empty
  std::deque<std::string> changed;
};

class PreTokenizer {
 public:
  static absl::StatusOr<PreTokenizer> FromJson(const std::optional<JsonValue>& json);

  // The words of one part of a text. `is_first`: the part stands at the text's start.
  absl::StatusOr<Words> Apply(absl::string_view part, bool is_first) const;

  // If true, words are to be encoded byte by byte, not character by character.
  bool is_byte_level() const { return is_byte_level_; }

 private:
  absl::Status AddStep(const JsonValue& step);
  absl::Status AddByteLevel(const JsonValue& step);

  std::vector<std::variant<SplitStep, MetaspaceStep, PrefixSpaceStep, SpellBytesStep>> steps_;
  bool is_byte_level_ = false;
  bool cuts_spelling_ = false;  // until the end, words are bytes in their spelling
};

}  // namespace foretoken::tokenizer
