// SPDX-License-Identifier: Apache-2.0
#include "client/prompt_lines.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

namespace foretoken::client {

absl::StatusOr<std::vector<std::string>> ParsePromptLines(absl::string_view text) {
  std::vector<std::string> prompts;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const auto json = nlohmann::json::parse(line.begin(), line.end(), /*cb=*/nullptr, /*allow_exceptions=*/false);
    const auto prompt = json.is_object() ? json.find("prompt") : json.end();
    if (!json.is_object() || prompt == json.end() || !prompt->is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--prompt_file: line ", line_number, ": expected {\"prompt\": TEXT}, got ", line.substr(0, 60)));
    }
    prompts.push_back(*prompt->get_ptr<const std::string*>());
  }
  if (prompts.empty()) return absl::InvalidArgumentError("--prompt_file: expected at least one prompt, got none");
  return prompts;
}

}  // namespace foretoken::client
