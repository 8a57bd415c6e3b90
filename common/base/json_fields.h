// SPDX-License-Identifier: Apache-2.0
// Reads the fields of a JSON object that others wrote, by name and type. A field that is null counts as absent.
//
//   FT_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Parse(text, "config.json"));
//   FT_ASSIGN_OR_RETURN(const int64_t hidden_size, fields.Required<int64_t>("hidden_size"));
//   FT_ASSIGN_OR_RETURN(const std::optional<double> eps, fields.Optional<double>("rms_norm_eps"));
//
// T is bool, int64_t, double (finite), std::string, or a std::vector of int64_t, double or std::string. A single
// integer also reads as a list of one. Errors: INVALID_ARGUMENT with the source, the field, the expected and the given
// value.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"

namespace foretoken::model {

class JsonFields {
 public:
  static absl::StatusOr<JsonFields> Parse(absl::string_view text, absl::string_view source);

  bool Has(const std::string& name) const { return Get(name) != nullptr; }
  // True if the field is present and null. For fields in which null has another meaning than absence.
  bool IsNull(const std::string& name) const;

  template <typename T>
  absl::StatusOr<std::optional<T>> Optional(const std::string& name) const;

  template <typename T>
  absl::StatusOr<T> Required(const std::string& name) const {
    absl::StatusOr<std::optional<T>> value = Optional<T>(name);
    if (!value.ok()) return value.status();
    if (!value->has_value()) return Error(name, "is missing");
    return **std::move(value);
  }

  template <typename T>
  absl::StatusOr<T> OrDefault(const std::string& name, T default_value) const {
    absl::StatusOr<std::optional<T>> value = Optional<T>(name);
    if (!value.ok()) return value.status();
    return std::move(*value).value_or(std::move(default_value));
  }

  // The names of all fields that are not null.
  std::vector<std::string> Names() const;

  // The object in a field; unset: the field is absent.
  absl::StatusOr<std::optional<JsonFields>> Object(const std::string& name) const;

  // The field as JSON text, for messages and comparisons; "null" if it is absent.
  std::string Text(const std::string& name) const;

  // INVALID_ARGUMENT "<source>: <field> <problem>".
  template <typename... Parts>
  absl::Status Error(absl::string_view name, const Parts&... problem) const {
    return absl::InvalidArgumentError(absl::StrCat(source_, ": ", prefix_, name, " ", problem...));
  }

 private:
  JsonFields(std::shared_ptr<const nlohmann::json> object, std::string source, std::string prefix)
      : object_(std::move(object)), source_(std::move(source)), prefix_(std::move(prefix)) {}
  const nlohmann::json* Get(const std::string& name) const;

  std::shared_ptr<const nlohmann::json> object_;  // a part of it keeps the whole
  std::string source_;
  std::string prefix_;  // "rope_parameters." for the fields of that object
};

}  // namespace foretoken::model
