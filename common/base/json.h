// SPDX-License-Identifier: Apache-2.0
// Reads JSON that others wrote, such as the files of a checkpoint.
//
//   FT_ASSIGN_OR_RETURN(const nlohmann::json config, base::ParseJson(text, "config.json"));
//
// Copying, comparing and printing a parsed value are recursive, so ParseJson refuses deep nesting before it parses.
// Errors: INVALID_ARGUMENT with the source.
#pragma once

#include <limits>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace foretoken::base {

// The deepest nesting of lists and objects. Checkpoints' files have about ten levels; a tokenizer of 16 nested
// sequences, our limit, has some forty.
inline constexpr int kMaxJsonDepth = 64;

// `source` names the text in messages.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, absl::string_view source);

inline constexpr int kAnyNames = std::numeric_limits<int>::max();

// The same for JSON whose objects keep the order of the text. Such an object looks for a name among all of its names,
// so that N names take the time of N^2: objects with more than `max_names` are refused.
absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(absl::string_view text, absl::string_view source,
                                                        int max_names = kAnyNames);

// At least the number of values in the JSON text: its commas and opening brackets outside of strings, and one.
size_t CountJsonValues(absl::string_view text);

// The first name that one object of the text has twice, at any depth: ParseJson keeps the last of its values and does
// not tell. Unset: there is none, or none before the place where the text stops being JSON.
std::optional<std::string> FindRepeatedName(absl::string_view text);

// Parses a whole file of at most kMaxReadBytes. Errors also as ReadFile.
absl::StatusOr<nlohmann::json> ReadJson(const std::string& path);

}  // namespace foretoken::base
