// SPDX-License-Identifier: Apache-2.0
// Changes a text before it is cut into words: the "normalizer" of tokenizer.json.
//
// Supported: NFC, Prepend, Replace (of a string), and a Sequence of them. Others are refused by name.
// NFC: nfc.h.
// Errors: FromJson returns INVALID_ARGUMENT, which names the step.
// Threads: immutable.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_value.h"
#include "common/tokenizer/text_range.h"

namespace foretoken::tokenizer {

struct Nfc {};
// Adds the prefix before a text that is not empty.
struct Prepend {
  std::string prefix;
};
struct ReplaceAll {
  std::string pattern;  // not empty
  std::string content;
};

class Normalizer {
 public:
  static absl::StatusOr<Normalizer> FromJson(const std::optional<JsonValue>& json);
  // The text must be well-formed UTF-8; so is the result. The result's ranges are what becomes of the text's ranges. A
  // character that is made of the inside and the outside of a range together lies in none. A prefix belongs to a range
  // that starts with the text.
  RangedText Apply(RangedText text) const;
  std::string Apply(absl::string_view text) const { return Apply(RangedText{.text = std::string(text)}).text; }
  bool is_identity() const { return steps_.empty(); }

 private:
  std::vector<std::variant<Nfc, Prepend, ReplaceAll>> steps_;
};

// What the steps of a normalizer or a decoder may do together. They multiply, so a file could make a short text fill
// all memory. Real files have two or three steps, each of which replaces one character by another.
class StepBounds {
 public:
  static constexpr int kMaxSteps = 64;
  static constexpr double kMaxGrowth = 64;  // of a text's bytes
  // INVALID_ARGUMENT, which names the step: it is one too many.
  absl::Status Take(const JsonValue& step, double growth);

 private:
  int num_steps_ = 0;
  double growth_ = 1;
};
double Growth(const ReplaceAll& replace);

// Reads "pattern" {"String": ...} and "content" of a Replace step, in the form that normalizers and decoders share.
absl::StatusOr<ReplaceAll> ReplaceFromJson(const JsonValue& step);
std::string Apply(const ReplaceAll& replace, absl::string_view text);

}  // namespace foretoken::tokenizer
