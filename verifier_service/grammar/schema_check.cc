// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/schema_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace foretoken::verifier {
namespace {

using Json = nlohmann::json;
using Keywords = std::vector<absl::string_view>;

// Everything that can make a value invalid. Other keywords describe, or are nobody's.
constexpr absl::string_view kDemands[] = {"$ref",
                                          "$dynamicRef",
                                          "const",
                                          "enum",
                                          "anyOf",
                                          "oneOf",
                                          "allOf",
                                          "not",
                                          "if",
                                          "then",
                                          "else",
                                          "type",
                                          "minimum",
                                          "maximum",
                                          "multipleOf",
                                          "exclusiveMinimum",
                                          "pattern",
                                          "minLength",
                                          "maxLength",
                                          "exclusiveMaximum",
                                          "items",
                                          "prefixItems",
                                          "contains",
                                          "additionalItems",
                                          "minItems",
                                          "maxItems",
                                          "uniqueItems",
                                          "unevaluatedItems",
                                          "minContains",
                                          "maxContains",
                                          "required",
                                          "additionalProperties",
                                          "properties",
                                          "patternProperties",
                                          "propertyNames",
                                          "unevaluatedProperties",
                                          "minProperties",
                                          "maxProperties",
                                          "dependencies",
                                          "dependentRequired",
                                          "dependentSchemas"};

constexpr absl::string_view kFirstKeywords[] = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};

Keywords OfType(absl::string_view type) {
  if (type == "string") return {"minLength", "maxLength", "pattern"};
  if (type == "number") return {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
  if (type == "integer") return {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
  if (type == "array") return {"items", "prefixItems", "minItems", "maxItems", "unevaluatedItems"};
  if (type == "object") {
    return {"properties",        "required",      "additionalProperties", "unevaluatedProperties",
            "patternProperties", "propertyNames", "minProperties",        "maxProperties"};
  }
  return {};
}

bool HasType(const Json& value, absl::string_view type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  return type == value.type_name();
}

std::vector<std::string> TypesOf(const Json& schema) {
  std::vector<std::string> types;
  const auto add = [&](const Json& type) {
    if (type.is_string()) types.push_back(type.get<std::string>());
  };
  const auto type = schema.find("type");
  if (type != schema.end() && type->is_array()) std::ranges::for_each(*type, add);
  if (type != schema.end()) add(*type);
  return types;
}

bool IsAmong(absl::string_view type, const std::vector<std::string>& types) {
  return std::ranges::find(types, type) != types.end() || (type == "integer" && IsAmong("number", types));
}

// The types that XGrammar gives to a schema without const, enum and combinations.
std::vector<std::string> FollowedTypes(const Json& schema) {
  std::vector<std::string> types = TypesOf(schema);
  if (!types.empty()) return types;
  const auto has_any = [&](std::initializer_list<absl::string_view> keywords) {
    return std::ranges::any_of(keywords, [&](absl::string_view keyword) { return schema.contains(keyword); });
  };
  if (has_any({"properties", "additionalProperties", "unevaluatedProperties"})) return {"object"};
  if (has_any({"items", "prefixItems", "unevaluatedItems"})) return {"array"};
  return {};
}

// Whether every value that XGrammar lets through has one of these types, whatever `type` says beside a combination.
bool HasOnly(const Json& schema, const std::vector<std::string>& types) {
  const auto fits = [&](const Json& value) {
    return std::ranges::any_of(types, [&](const std::string& type) { return HasType(value, type); });
  };
  if (!schema.is_object() || schema.contains("$ref")) return false;
  if (schema.contains("const")) return fits(schema["const"]);
  if (schema.contains("enum")) return schema["enum"].is_array() && std::ranges::all_of(schema["enum"], fits);
  for (const absl::string_view combination : {"anyOf", "oneOf", "allOf"}) {
    if (!schema.contains(combination)) continue;
    return std::ranges::all_of(schema[combination], [&](const Json& one) { return HasOnly(one, types); });
  }
  const std::vector<std::string> followed = FollowedTypes(schema);
  return !followed.empty() &&
         std::ranges::all_of(followed, [&](const std::string& type) { return IsAmong(type, types); });
}

// What XGrammar follows in this schema, and how to call it in a message.
struct Followed {
  std::string by;
  Keywords keywords;
};

Followed FollowedIn(const Json& schema) {
  for (const absl::string_view first : kFirstKeywords) {
    if (schema.contains(first)) return {.by = absl::StrCat("beside ", first), .keywords = {first}};
  }
  Followed followed = {.by = "without a type"};
  if (schema.contains("type")) {
    followed = {.by = absl::StrCat("beside type ", schema["type"].dump()), .keywords = {"type"}};
  }
  for (const std::string& type : FollowedTypes(schema)) {
    const Keywords more = OfType(type);
    followed.keywords.insert(followed.keywords.end(), more.begin(), more.end());
  }
  return followed;
}

// Whether a demand demands nothing, or what another one has said.
bool IsMet(absl::string_view keyword, const Json& schema) {
  if (keyword == "uniqueItems") return schema[keyword] == false;
  return keyword == "type" && HasOnly(schema, TypesOf(schema));
}

bool IsBuiltinFormat(const Json& format) {
  constexpr absl::string_view kFormats[] = {
      "email",    "date", "time", "date-time",     "duration",     "ipv4",         "ipv6",
      "hostname", "uuid", "uri",  "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"};
  return format.is_string() && std::ranges::find(kFormats, format.get<std::string>()) != std::end(kFormats);
}

// Combinations of keywords of which XGrammar follows one.
absl::string_view BadCombination(const Json& schema) {
  const auto has = [&](absl::string_view keyword) { return schema.contains(keyword); };
  if (has("allOf") && schema["allOf"].size() != 1) return "allOf: expected one schema";
  if (has("$ref") && schema["$ref"].is_string() && !absl::StartsWith(schema["$ref"].get<std::string>(), "#")) {
    return "$ref: expected a place in this schema, as in #/$defs/name";
  }
  if (has("propertyNames") && has("patternProperties"))
    return "propertyNames: is not supported beside patternProperties";
  if (has("minLength") || has("maxLength")) {
    if (has("pattern")) return "pattern: is not supported beside minLength and maxLength";
    if (has("format") && IsBuiltinFormat(schema["format"])) {
      return "format: is not supported beside minLength and maxLength";
    }
  }
  if (has("pattern") && schema["pattern"].is_string()) {
    const std::string pattern = schema["pattern"].get<std::string>();
    for (const absl::string_view look : {"(?=", "(?!", "(?<=", "(?<!"}) {
      if (absl::StrContains(pattern, look)) return "pattern: lookahead and lookbehind are not supported";
    }
  }
  if (has("multipleOf")) {
    const bool is_bounded = has("minimum") || has("maximum") || has("exclusiveMinimum") || has("exclusiveMaximum");
    if (is_bounded) return "multipleOf: is not supported beside bounds";
    constexpr int64_t kMost = 1024;
    const Json& value = schema["multipleOf"];
    if (!value.is_number_integer() || value < 1 || value > kMost)
      return "multipleOf: expected an integer from 1 to 1024";
  }
  return "";
}

absl::Status Error(const std::string& place, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(place, place.empty() ? "" : ": ", what));
}

absl::Status CheckAt(const Json& schema, const std::string& place);

// XGrammar knows that a name is a string.
Json WithTypeOfNames(Json schema) {
  const bool has_type = schema.contains("type") || std::ranges::any_of(kFirstKeywords, [&](absl::string_view first) {
                          return schema.contains(first);
                        });
  if (!has_type) schema["type"] = "string";
  return schema;
}

absl::Status CheckInside(const Json& schema, const std::string& place) {
  const auto inside = [&](const auto& key) { return absl::StrCat(place, place.empty() ? "" : ".", key); };
  for (const auto& [keyword, value] : schema.items()) {
    constexpr absl::string_view kMaps[] = {"properties", "patternProperties", "$defs", "definitions"};
    constexpr absl::string_view kLists[] = {"anyOf", "oneOf", "allOf", "prefixItems", "items"};
    constexpr absl::string_view kSchemas[] = {"items", "additionalProperties", "unevaluatedProperties",
                                              "unevaluatedItems", "propertyNames"};
    const auto is_in = [&, &name = keyword](const auto& names) {
      return std::ranges::find(names, name) != std::end(names);
    };
    if (value.is_object() && is_in(kMaps)) {
      for (const auto& [name, one] : value.items()) {
        FT_RETURN_IF_ERROR(CheckAt(one, absl::StrCat(inside(keyword), ".", name)));
      }
    } else if (value.is_array() && is_in(kLists)) {
      for (size_t i = 0; i < value.size(); ++i) {
        FT_RETURN_IF_ERROR(CheckAt(value[i], absl::StrCat(inside(keyword), ".", i)));
      }
    } else if (value.is_object() && is_in(kSchemas)) {
      FT_RETURN_IF_ERROR(CheckAt(keyword == "propertyNames" ? WithTypeOfNames(value) : value, inside(keyword)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAt(const Json& schema, const std::string& place) {
  if (!schema.is_object()) return absl::OkStatus();  // true, false, or an error that XGrammar names
  if (const absl::string_view what = BadCombination(schema); !what.empty()) return Error(place, what);
  const Followed followed = FollowedIn(schema);
  for (const absl::string_view demand : kDemands) {
    if (!schema.contains(demand) || std::ranges::find(followed.keywords, demand) != followed.keywords.end()) continue;
    if (IsMet(demand, schema)) continue;
    return Error(place, absl::StrCat(demand, ": is not supported ", followed.by));
  }
  return CheckInside(schema, place);
}

}  // namespace

absl::Status CheckSchema(const Json& schema) { return CheckAt(schema, ""); }

absl::Status CheckTagSchemas(const Json& tag) {
  for (const auto& [key, value] : tag.items()) {
    if (tag.is_object() && key == "json_schema") FT_RETURN_IF_ERROR(CheckSchema(value));
    if (value.is_structured()) FT_RETURN_IF_ERROR(CheckTagSchemas(value));
  }
  return absl::OkStatus();
}

}  // namespace foretoken::verifier
