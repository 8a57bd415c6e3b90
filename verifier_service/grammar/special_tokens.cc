// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/special_tokens.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/json.h"

namespace foretoken::verifier {
namespace {

using OrderedJson = nlohmann::ordered_json;  // properties come in the schema's order
using Replacements = std::vector<std::pair<absl::string_view, std::string>>;

// Stands for the mark while the text must be UTF-8. It is a noncharacter, by which no text means anything.
constexpr char kStandIn[] = "\xEF\xB7\x90";  // U+FDD0

// Whether what this key of a format has may be text of the output.
bool HasText(absl::string_view key) {
  constexpr absl::string_view kOthers[] = {"type", "style", "json_schema", "grammar", "pattern"};
  return std::ranges::find(kOthers, key) == std::end(kOthers);
}

// Returns the number of marks.
int MarkIn(OrderedJson& value, const Replacements& marked) {
  if (value.is_string()) return absl::StrReplaceAll(marked, &value.get_ref<std::string&>());
  int num_marks = 0;
  for (auto element = value.begin(); value.is_structured() && element != value.end(); ++element) {
    if (value.is_array() || HasText(element.key())) num_marks += MarkIn(*element, marked);
  }
  return num_marks;
}

}  // namespace

std::string MarkSpecialTokens(const std::string& tag, std::span<const std::string> spellings) {
  absl::StatusOr<OrderedJson> parsed = base::ParseOrderedJson(tag, "structural tag");
  if (!parsed.ok()) return tag;
  Replacements marked;
  for (const std::string& spelling : spellings) marked.emplace_back(spelling, absl::StrCat(kStandIn, spelling));
  if (MarkIn(*parsed, marked) == 0) return tag;
  return absl::StrReplaceAll(parsed->dump(), {{kStandIn, std::string(1, kSpecialMark)}});
}

}  // namespace foretoken::verifier
