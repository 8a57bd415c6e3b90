// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/schema_check.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "verifier_service/grammar/regex_check.h"

namespace foretoken::verifier {
namespace {

using Json = nlohmann::json;
using Keywords = std::vector<absl::string_view>;

// Everything that can make a value invalid. Other keywords describe, or are nobody's.
constexpr absl::string_view kDemands[] = {"$ref",
                                          "$dynamicRef",
                                          "$recursiveRef",
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

// The names on the way to a place in the schema, as XGrammar reads them; unset for a reference to something else.
std::optional<std::vector<std::string>> PlaceOf(absl::string_view reference) {
  if (reference == "#") return std::vector<std::string>();
  if (!absl::ConsumePrefix(&reference, "#/")) return std::nullopt;
  return absl::StrSplit(reference, '/', absl::SkipEmpty());
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

// The characters with which each name begins that the pattern matches; "" if that is hard to say.
std::string LiteralBeginning(absl::string_view pattern) {
  if (!absl::ConsumePrefix(&pattern, "^") || absl::StrContains(pattern, '|')) return "";
  const auto is_literal = [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; };
  size_t length = 0;
  while (length < pattern.size() && is_literal(pattern[length])) ++length;
  const bool is_repeated = length < pattern.size() && absl::StrContains("*?{", pattern[length]);
  return std::string(pattern.substr(0, is_repeated && length > 0 ? length - 1 : length));
}

// XGrammar gives a property one schema: that of its name, or of any pattern that its name matches.
bool MayHaveTwoSchemas(const Json& schema) {
  if (!schema.contains("patternProperties") || !schema["patternProperties"].is_object()) return false;
  std::vector<std::string> beginnings;
  const auto begins_differently = [&](absl::string_view name) {
    return std::ranges::none_of(beginnings, [&](absl::string_view beginning) {
      return absl::StartsWith(name, beginning) || absl::StartsWith(beginning, name);
    });
  };
  for (const auto& [pattern, value] : schema["patternProperties"].items()) {
    const std::string beginning = LiteralBeginning(pattern);
    if (!begins_differently(beginning)) return true;
    beginnings.push_back(beginning);
  }
  if (!schema.contains("properties") || !schema["properties"].is_object()) return false;
  const auto may_match = [&](absl::string_view name) {
    return std::ranges::any_of(beginnings, [&](absl::string_view begin) { return absl::StartsWith(name, begin); });
  };
  return std::ranges::any_of(schema["properties"].items(), [&](const auto& one) { return may_match(one.key()); });
}

// What XGrammar passes over among the keywords of objects.
std::string BadObject(const Json& schema) {
  const auto has = [&](absl::string_view keyword) { return schema.contains(keyword); };
  if (has("propertyNames")) {
    for (const absl::string_view other : {"patternProperties", "properties"}) {
      if (has(other)) return absl::StrCat("propertyNames: is not supported beside ", other);
    }
  }
  if (has("patternProperties") && has("properties")) {
    for (const absl::string_view other : {"additionalProperties", "unevaluatedProperties"}) {
      if (has(other) && schema[other] != false) {
        return absl::StrCat(other, ": is not supported beside properties and patternProperties");
      }
    }
  }
  if (has("patternProperties") && schema["patternProperties"].is_object()) {
    for (const auto& [pattern, value] : schema["patternProperties"].items()) {
      if (const std::string bad = BadRegex(pattern); !bad.empty()) return absl::StrCat("patternProperties: ", bad);
    }
  }
  if (MayHaveTwoSchemas(schema)) {
    return "patternProperties: expected patterns that begin with other letters than each other and than properties, "
           "as in ^a and ^b";
  }
  if (!has("required") || !schema["required"].is_array()) return "";
  const bool has_properties = has("properties") && schema["properties"].is_object();
  for (const Json& name : schema["required"]) {
    if (!name.is_string() || (has_properties && schema["properties"].contains(name.get<std::string>()))) continue;
    return absl::StrCat("required: expected names among properties, got ", name.dump());
  }
  return "";
}

// XGrammar holds numbers as integers of 64 bits with a sign, or else as doubles, and prints these otherwise than the
// schema. Doubles of this size are all integers, so it would print another integer.
bool HasInexactNumber(const Json& value) {
  constexpr double kEnd = 0x1p63;
  if (value.is_structured()) return std::ranges::any_of(value, HasInexactNumber);
  return value.is_number_unsigned() ? value.get<uint64_t>() >= uint64_t{1} << 63
                                    : value.is_number_float() && std::abs(value.get<double>()) >= kEnd;
}

// XGrammar follows the remainder from digit to digit, or lists the multiples between two bounds.
absl::string_view BadMultiple(const Json& schema) {
  constexpr int64_t kMostRemainders = 1024;
  constexpr double kMostListed = 10'000;
  constexpr double kMostBound = 1e15;  // doubles below it are exact
  if (IsAmong("number", TypesOf(schema))) return "multipleOf: is not supported for numbers that are no integers";
  const Json& divisor = schema["multipleOf"];
  if (!divisor.is_number_integer() || divisor < 1 || divisor > kMostRemainders) {
    return "multipleOf: expected an integer from 1 to 1024";
  }
  const auto bound = [&](absl::string_view inclusive, absl::string_view exclusive) -> std::optional<double> {
    for (const absl::string_view keyword : {inclusive, exclusive}) {
      if (schema.contains(keyword) && schema[keyword].is_number()) return schema[keyword].get<double>();
    }
    return std::nullopt;
  };
  const std::optional<double> least = bound("minimum", "exclusiveMinimum");
  const std::optional<double> most = bound("maximum", "exclusiveMaximum");
  if (!least.has_value() && !most.has_value()) return "";
  if (least.has_value() && most.has_value() && std::abs(*least) < kMostBound && *most - *least < kMostListed) return "";
  return "multipleOf: expected no bounds, or two with at most 10000 integers between them";
}

// Combinations of keywords of which XGrammar follows one.
std::string BadCombination(const Json& schema) {
  const auto has = [&](absl::string_view keyword) { return schema.contains(keyword); };
  if (has("allOf") && schema["allOf"].size() != 1) return "allOf: expected one schema";
  if (has("$ref") && schema["$ref"].is_string() && !PlaceOf(schema["$ref"].get<std::string>()).has_value()) {
    return "$ref: expected a place in this schema, as in #/$defs/name";
  }
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
    if (const std::string bad = BadRegex(pattern); !bad.empty()) return absl::StrCat("pattern: ", bad);
  }
  for (const absl::string_view keyword : {"const", "enum"}) {
    if (has(keyword) && HasInexactNumber(schema[keyword])) {
      return absl::StrCat(keyword, ": expected numbers from -2^63 to 2^63 - 1");
    }
  }
  return has("multipleOf") ? std::string(BadMultiple(schema)) : "";
}

absl::Status Error(const std::string& place, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(place, place.empty() ? "" : ": ", what));
}

// XGrammar knows that a name is a string.
Json WithTypeOfNames(Json schema) {
  const bool has_type = schema.contains("type") || std::ranges::any_of(kFirstKeywords, [&](absl::string_view first) {
                          return schema.contains(first);
                        });
  if (!has_type) schema["type"] = "string";
  return schema;
}

class Checker {
 public:
  explicit Checker(const Json& root) : root_(root) {}

  absl::Status CheckAt(const Json& schema, const std::string& place) {
    if (!schema.is_object()) return absl::OkStatus();  // true, false, or an error that XGrammar names
    if (const std::string what = BadCombination(schema); !what.empty()) return Error(place, what);
    const Followed followed = FollowedIn(schema);
    for (const absl::string_view demand : kDemands) {
      if (!schema.contains(demand) || std::ranges::find(followed.keywords, demand) != followed.keywords.end()) continue;
      if (IsMet(demand, schema)) continue;
      return Error(place, absl::StrCat(demand, ": is not supported ", followed.by));
    }
    if (const std::string what = BadObject(schema); !what.empty()) return Error(place, what);
    FT_RETURN_IF_ERROR(CheckTarget(schema));
    return CheckInside(schema, place);
  }

 private:
  // The schema at the place to which `schema` refers; null if it refers to none, which XGrammar names.
  const Json* TargetOf(const Json& schema) const {
    const auto reference = schema.find("$ref");
    if (reference == schema.end() || !reference->is_string()) return nullptr;
    const Json* target = &root_;
    for (const std::string& name : PlaceOf(reference->get<std::string>()).value_or(std::vector<std::string>())) {
      if (!target->is_object() || !target->contains(name)) return nullptr;
      target = &(*target)[name];
    }
    return target;
  }

  // The place may be one where no schema is looked for.
  absl::Status CheckTarget(const Json& schema) {
    const Json* const target = TargetOf(schema);
    if (target == nullptr || !targets_.insert(target).second) return absl::OkStatus();
    return CheckAt(*target, absl::StrJoin(*PlaceOf(schema["$ref"].get<std::string>()), "."));
  }

  absl::Status CheckInside(const Json& schema, const std::string& place) {
    const auto inside = [&](const auto& key) { return absl::StrCat(place, place.empty() ? "" : ".", key); };
    for (const auto& [keyword, value] : schema.items()) {
      constexpr absl::string_view kMaps[] = {"properties", "patternProperties", "$defs", "definitions"};
      constexpr absl::string_view kLists[] = {"anyOf", "oneOf", "allOf", "prefixItems", "items"};
      constexpr absl::string_view kSchemas[] = {"items", "additionalProperties", "unevaluatedProperties",
                                                "unevaluatedItems"};
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
        FT_RETURN_IF_ERROR(CheckAt(value, inside(keyword)));
      } else if (value.is_object() && keyword == "propertyNames") {
        FT_RETURN_IF_ERROR(CheckNames(WithTypeOfNames(value), inside(keyword)));
      }
    }
    return absl::OkStatus();
  }

  // A name that is no string would make the object no JSON.
  absl::Status CheckNames(const Json& schema, const std::string& place) {
    FT_RETURN_IF_ERROR(CheckAt(schema, place));
    const Json* const target = TargetOf(schema);
    if (HasOnly(target == nullptr ? schema : *target, {"string"})) return absl::OkStatus();
    return Error(place, "expected a schema that says of each value that it is a string");
  }

  const Json& root_;
  absl::flat_hash_set<const Json*> targets_;  // of references, as far as they are checked
};

}  // namespace

absl::Status CheckSchema(const Json& schema) { return Checker(schema).CheckAt(schema, ""); }

absl::Status CheckTag(const Json& tag) {
  for (const auto& [key, value] : tag.items()) {
    if (tag.is_object() && key == "json_schema") {
      FT_RETURN_IF_ERROR(CheckSchema(value));
    } else if (value.is_structured()) {
      FT_RETURN_IF_ERROR(CheckTag(value));
    }
  }
  if (!tag.is_object() || tag.value("type", Json()) != "regex" || !tag.value("pattern", Json()).is_string()) {
    return absl::OkStatus();
  }
  const std::string bad = BadRegex(tag["pattern"].get<std::string>());
  return bad.empty() ? absl::OkStatus() : Error("pattern", bad);
}

}  // namespace foretoken::verifier
