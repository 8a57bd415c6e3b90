// SPDX-License-Identifier: Apache-2.0
#include "common/base/json.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"

namespace foretoken::base {
namespace {

// Counts brackets and colons outside of strings. The result is right for JSON; the parser refuses all other text later.
absl::Status CheckShape(absl::string_view text, absl::string_view source, int max_names) {
  int depth = 0;
  int num_names[kMaxJsonDepth + 1] = {};  // so far, of the list or object that is open at each depth
  bool is_in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') is_in_string = !is_in_string;
    if (is_in_string) {
      if (c == '\\') ++i;
      continue;
    }
    if (c == ']' || c == '}') depth = std::max(0, depth - 1);
    if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        return absl::InvalidArgumentError(
            absl::StrCat(source, ": expected JSON of at most ", kMaxJsonDepth, " nested levels, got more"));
      }
      num_names[depth] = 0;
    }
    if (c == ':' && ++num_names[depth] > max_names) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": expected JSON objects of at most ", max_names, " names, got one with more"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, absl::string_view source,
                                         const nlohmann::json::parser_callback_t& inspect) {
  FT_RETURN_IF_ERROR(CheckShape(text, source, kAnyNames));
  nlohmann::json json = nlohmann::json::parse(text.begin(), text.end(), inspect, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError(absl::StrCat(source, ": not valid JSON"));
  return json;
}

absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(absl::string_view text, absl::string_view source,
                                                        int max_names) {
  FT_RETURN_IF_ERROR(CheckShape(text, source, max_names));
  auto json = nlohmann::ordered_json::parse(text.begin(), text.end(), /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError(absl::StrCat(source, ": not valid JSON"));
  return json;
}

absl::StatusOr<nlohmann::json> ReadJson(const std::string& path) {
  FT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseJson(text, path);
}

}  // namespace foretoken::base
