// SPDX-License-Identifier: Apache-2.0
// A value inside a JSON file that remembers its place, so that an error names the file and the field.
//
//   FT_ASSIGN_OR_RETURN(JsonValue model, root.Member("model"));
//   FT_ASSIGN_OR_RETURN(bool fallback, model.BoolOr("byte_fallback", false));
//   // INVALID_ARGUMENT: /m/tokenizer.json: model.byte_fallback: expected true or false, got "yes"
//
// Errors: INVALID_ARGUMENT, "FILE: FIELD: expected ..., got ...".
// Threads: it is a view; the parsed document and the file's name must outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"

namespace foretoken::tokenizer {

class JsonValue {
 public:
  JsonValue(const nlohmann::json& json, const std::string& file) : json_(&json), file_(&file) {}

  const nlohmann::json& json() const { return *json_; }
  // "FILE: FIELD: what"
  absl::Status Error(absl::string_view what) const;
  // "FILE: FIELD: expected EXPECTED, got ..." with the value, shortened.
  absl::Status Expected(absl::string_view expected) const;

  // Member must exist; OptionalMember is nullopt if it is absent or null.
  absl::StatusOr<JsonValue> Member(const char* name) const;
  absl::StatusOr<std::optional<JsonValue>> OptionalMember(const char* name) const;
  absl::StatusOr<std::vector<JsonValue>> Elements() const;
  absl::StatusOr<std::vector<std::pair<absl::string_view, JsonValue>>> Members() const;

  absl::StatusOr<std::string> String() const;
  absl::StatusOr<double> Number() const;
  // The id of a token: an integer from 0 to 2^31 - 1.
  absl::StatusOr<int32_t> TokenId() const;
  absl::StatusOr<std::string> StringMember(const char* name) const;
  absl::StatusOr<bool> BoolOr(const char* name, bool absent) const;
  absl::StatusOr<int32_t> CountOr(const char* name, int32_t absent) const;

  // The steps of a normalizer, pre-tokenizer, decoder or post-processor. An absent or null value has none. A "Sequence"
  // has the steps of its list `list_name`, nested ones in order. Any other value is itself the one step.
  static absl::StatusOr<std::vector<JsonValue>> Steps(const std::optional<JsonValue>& value, const char* list_name);

 private:
  JsonValue(const nlohmann::json& json, const std::string* file, std::string field)
      : json_(&json), file_(file), field_(std::move(field)) {}

  const nlohmann::json* json_;
  const std::string* file_;
  std::string field_;  // "model.merges[3]", empty for the whole file
};

}  // namespace foretoken::tokenizer
