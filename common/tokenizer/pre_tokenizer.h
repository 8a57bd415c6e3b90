// SPDX-License-Identifier: Apache-2.0
// How a text is cut into words, each of which is encoded on its own: the "pre_tokenizer" of tokenizer.json.
//
// Supported: Split (a string or a pattern, in every behavior), Digits, Punctuation, ByteLevel, Metaspace in its old
// (add_prefix_space) and new (prepend_scheme, split) spelling, and a Sequence of them in which nothing but Split,
// Digits and Punctuation follows ByteLevel. These then cut the bytes' spelling (byte_level.h), as Hugging Face has it:
// a byte 0xB2 inside a character is spelled as a superscript two, and so is a digit. None at all makes the whole text
// one word. Others are refused by name. Errors: FromJson INVALID_ARGUMENT naming the step and its pattern; Apply as
// Pattern::FindAll. Threads: immutable.
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

// What happens to the text that a Split matches. With `invert`, "matched" is what lies between the matches.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct SplitStep {
  Pattern pattern;
  SplitBehavior behavior;
  bool invert;
};

enum class PrependScheme { kAlways, kFirst, kNever };  // before every part of the text, the first alone, none

// Spaces become `replacement`, one is put in front as the scheme says (unless there), and words start at each.
struct MetaspaceStep {
  std::string replacement;  // one character
  PrependScheme prepend_scheme;
  std::optional<Pattern> split;
};

struct PrefixSpaceStep {};  // of ByteLevel
struct SpellBytesStep {};   // of ByteLevel, where steps follow

// "replacement" and the prepend scheme in either spelling, as pre-tokenizers and decoders have it.
absl::StatusOr<std::string> MetaspaceReplacementFromJson(const JsonValue& step);
absl::StatusOr<PrependScheme> PrependSchemeFromJson(const JsonValue& step);

// Views into the text that was cut, or into `changed` where a step changed it.
struct Words {
  std::vector<absl::string_view> words;  // none of them empty
  std::deque<std::string> changed;
};

class PreTokenizer {
 public:
  static absl::StatusOr<PreTokenizer> FromJson(const std::optional<JsonValue>& json);

  // The words of one part of a text. `is_first`: the part stands at the text's start.
  absl::StatusOr<Words> Apply(absl::string_view part, bool is_first) const;

  // The words are then to be encoded byte by byte, not character by character.
  bool is_byte_level() const { return is_byte_level_; }

 private:
  absl::Status AddStep(const JsonValue& step);
  absl::Status AddByteLevel(const JsonValue& step);

  std::vector<std::variant<SplitStep, MetaspaceStep, PrefixSpaceStep, SpellBytesStep>> steps_;
  bool is_byte_level_ = false;
  bool cuts_spelling_ = false;  // words are spelled bytes until the end
};

}  // namespace foretoken::tokenizer
