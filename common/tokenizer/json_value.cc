// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/json_value.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace foretoken::tokenizer {
namespace {

using nlohmann::json;

constexpr int kMaxSequenceDepth = 16;
constexpr size_t kMaxShownBytes = 80;

std::string Shown(const json& value) {
  if (value.is_object()) return absl::StrCat("an object of ", value.size(), " members");
  if (value.is_array()) return absl::StrCat("a list of ", value.size(), " elements");
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  if (text.size() > kMaxShownBytes) text = absl::StrCat(text.substr(0, kMaxShownBytes), "...");
  return text;
}

absl::Status AppendSteps(const JsonValue& value, const char* list_name, int depth, std::vector<JsonValue>& steps) {
  if (depth > kMaxSequenceDepth) {
    return value.Error(absl::StrCat("expected at most ", kMaxSequenceDepth, " nested sequences, got more"));
  }
  FT_ASSIGN_OR_RETURN(const std::string type, value.StringMember("type"));
  if (type != "Sequence") {
    steps.push_back(value);
    return absl::OkStatus();
  }
  FT_ASSIGN_OR_RETURN(const JsonValue list, value.Member(list_name));
  FT_ASSIGN_OR_RETURN(const std::vector<JsonValue> elements, list.Elements());
  for (const JsonValue& element : elements) FT_RETURN_IF_ERROR(AppendSteps(element, list_name, depth + 1, steps));
  return absl::OkStatus();
}

}  // namespace

absl::Status JsonValue::Error(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(*file_, ": ", field_, field_.empty() ? "" : ": ", what));
}

absl::Status JsonValue::Expected(absl::string_view expected) const {
  return Error(absl::StrCat("expected ", expected, ", got ", Shown(*json_)));
}

absl::StatusOr<std::optional<JsonValue>> JsonValue::OptionalMember(const char* name) const {
  if (!json_->is_object()) return Expected("an object");
  const auto it = json_->find(name);
  if (it == json_->end() || it->is_null()) return std::nullopt;
  return JsonValue(*it, file_, absl::StrCat(field_, field_.empty() ? "" : ".", name));
}

absl::StatusOr<JsonValue> JsonValue::Member(const char* name) const {
  FT_ASSIGN_OR_RETURN(std::optional<JsonValue> member, OptionalMember(name));
  if (!member) return Error(absl::StrCat("expected a member \"", name, "\", got none"));
  return *std::move(member);
}

absl::StatusOr<std::vector<JsonValue>> JsonValue::Elements() const {
  if (!json_->is_array()) return Expected("a list");
  std::vector<JsonValue> elements;
  elements.reserve(json_->size());
  for (size_t i = 0; i < json_->size(); ++i) {
    elements.push_back(JsonValue((*json_)[i], file_, absl::StrCat(field_, "[", i, "]")));
  }
  return elements;
}

absl::StatusOr<std::vector<std::pair<absl::string_view, JsonValue>>> JsonValue::Members() const {
  const auto* object = json_->get_ptr<const json::object_t*>();
  if (object == nullptr) return Expected("an object");
  std::vector<std::pair<absl::string_view, JsonValue>> members;
  members.reserve(object->size());
  for (const auto& [name, value] : *object) {
    members.emplace_back(name, JsonValue(value, file_, absl::StrCat(field_, field_.empty() ? "" : ".", name)));
  }
  return members;
}

absl::StatusOr<std::string> JsonValue::String() const {
  const auto* text = json_->get_ptr<const std::string*>();
  if (text == nullptr) return Expected("a string");
  return *text;
}

absl::StatusOr<double> JsonValue::Number() const {
  if (!json_->is_number()) return Expected("a number");
  return json_->get<double>();
}

absl::StatusOr<int32_t> JsonValue::TokenId() const {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  const auto* id = json_->get_ptr<const json::number_integer_t*>();
  const bool in_range = id != nullptr && *id >= 0 && *id <= kMax;
  if (!in_range) return Expected(absl::StrCat("a token id from 0 to ", kMax));
  return static_cast<int32_t>(*id);
}

absl::StatusOr<std::string> JsonValue::StringMember(const char* name) const {
  FT_ASSIGN_OR_RETURN(const JsonValue member, Member(name));
  return member.String();
}

absl::StatusOr<bool> JsonValue::BoolOr(const char* name, bool absent) const {
  FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> member, OptionalMember(name));
  if (!member) return absent;
  if (!member->json().is_boolean()) return member->Expected("true or false");
  return member->json().get<bool>();
}

absl::StatusOr<int32_t> JsonValue::CountOr(const char* name, int32_t absent) const {
  FT_ASSIGN_OR_RETURN(const std::optional<JsonValue> member, OptionalMember(name));
  if (!member) return absent;
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  const auto* count = member->json().get_ptr<const json::number_integer_t*>();
  const bool in_range = count != nullptr && *count >= 0 && *count <= kMax;
  if (!in_range) return member->Expected("a count");
  return static_cast<int32_t>(*count);
}

absl::StatusOr<std::vector<JsonValue>> JsonValue::Steps(const std::optional<JsonValue>& value, const char* list_name) {
  std::vector<JsonValue> steps;
  if (value) FT_RETURN_IF_ERROR(AppendSteps(*value, list_name, /*depth=*/0, steps));
  return steps;
}

}  // namespace foretoken::tokenizer
