// SPDX-License-Identifier: Apache-2.0
#include "common/base/json_fields.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace foretoken::model {
namespace {

using nlohmann::json;

std::string Dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

template <typename T>
constexpr const char* kExpected = nullptr;
template <>
constexpr const char* kExpected<bool> = "true or false";
template <>
constexpr const char* kExpected<int64_t> = "an integer";
template <>
constexpr const char* kExpected<double> = "a finite number";
template <>
constexpr const char* kExpected<std::string> = "a string";
template <>
constexpr const char* kExpected<std::vector<int64_t>> = "an integer or a list of integers";
template <>
constexpr const char* kExpected<std::vector<double>> = "a list of finite numbers";
template <>
constexpr const char* kExpected<std::vector<std::string>> = "a list of strings";

bool Convert(const json& value, bool& out) {
  if (!value.is_boolean()) return false;
  out = value.get<bool>();
  return true;
}

bool Convert(const json& value, int64_t& out) {
  if (!value.is_number_integer()) return false;
  const auto max = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (value.is_number_unsigned() && value.get<uint64_t>() > max) return false;
  out = value.get<int64_t>();
  return true;
}

bool Convert(const json& value, double& out) {
  if (!value.is_number()) return false;
  out = value.get<double>();
  return std::isfinite(out);
}

bool Convert(const json& value, std::string& out) {
  if (!value.is_string()) return false;
  out = value.get<std::string>();
  return true;
}

template <typename T>
bool Convert(const json& value, std::vector<T>& out) {
  if (!value.is_array()) {
    out.resize(1);
    return std::is_same_v<T, int64_t> && Convert(value, out[0]);
  }
  out.resize(value.size());
  for (size_t i = 0; i < out.size(); ++i) {
    if (!Convert(value[i], out[i])) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<JsonFields> JsonFields::Parse(absl::string_view text, absl::string_view source) {
  FT_ASSIGN_OR_RETURN(json object, base::ParseJson(text, source));
  if (!object.is_object()) return absl::InvalidArgumentError(absl::StrCat(source, ": not a JSON object"));
  return JsonFields(std::make_shared<const json>(std::move(object)), std::string(source), "");
}

const json* JsonFields::Get(const std::string& name) const {
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

template <typename T>
absl::StatusOr<std::optional<T>> JsonFields::Optional(const std::string& name) const {
  const json* value = Get(name);
  if (value == nullptr) return std::optional<T>();
  T converted{};
  if (!Convert(*value, converted)) return Error(name, "expects ", kExpected<T>, ", got ", Dump(*value));
  return std::optional<T>(std::move(converted));
}

template absl::StatusOr<std::optional<bool>> JsonFields::Optional(const std::string&) const;
template absl::StatusOr<std::optional<int64_t>> JsonFields::Optional(const std::string&) const;
template absl::StatusOr<std::optional<double>> JsonFields::Optional(const std::string&) const;
template absl::StatusOr<std::optional<std::string>> JsonFields::Optional(const std::string&) const;
template absl::StatusOr<std::optional<std::vector<int64_t>>> JsonFields::Optional(const std::string&) const;
template absl::StatusOr<std::optional<std::vector<double>>> JsonFields::Optional(const std::string&) const;
template absl::StatusOr<std::optional<std::vector<std::string>>> JsonFields::Optional(const std::string&) const;

absl::StatusOr<std::optional<JsonFields>> JsonFields::Object(const std::string& name) const {
  const json* value = Get(name);
  if (value == nullptr) return std::optional<JsonFields>();
  if (!value->is_object()) return Error(name, "expects an object, got ", Dump(*value));
  return std::optional<JsonFields>(
      JsonFields(std::shared_ptr<const json>(object_, value), source_, absl::StrCat(prefix_, name, ".")));
}

std::vector<std::string> JsonFields::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_->items()) {
    if (!value.is_null()) names.push_back(name);
  }
  return names;
}

bool JsonFields::IsNull(const std::string& name) const {
  const auto found = object_->find(name);
  return found != object_->end() && found->is_null();
}

std::string JsonFields::Text(const std::string& name) const {
  const json* value = Get(name);
  return value == nullptr ? "null" : Dump(*value);
}

}  // namespace foretoken::model
