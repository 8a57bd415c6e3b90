// SPDX-License-Identifier: Apache-2.0
// What is done to a text before it is cut: the "normalizer" of tokenizer.json.
//
// Supported: NFC, Prepend, Replace (of a string), and a Sequence of them. Others are refused by name.
// NFC: nfc.h. Errors: FromJson INVALID_ARGUMENT naming the step. Threads: immutable.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_value.h"

namespace foretoken::tokenizer {

struct Nfc {};
// Puts the prefix before a text that is not empty.
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
  // The text must be well-formed UTF-8; so is the result.
  std::string Apply(absl::string_view text) const;
  bool is_identity() const { return steps_.empty(); }

 private:
  std::vector<std::variant<Nfc, Prepend, ReplaceAll>> steps_;
};

// "pattern" {"String": ...} and "content" of a Replace step, as normalizers and decoders have it.
absl::StatusOr<ReplaceAll> ReplaceFromJson(const JsonValue& step);
std::string Apply(const ReplaceAll& replace, absl::string_view text);

}  // namespace foretoken::tokenizer
