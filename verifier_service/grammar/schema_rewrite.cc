// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/schema_rewrite.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "absl/strings/string_view.h"
#include "common/base/json.h"

namespace foretoken::verifier {
namespace {

using OrderedJson = nlohmann::ordered_json;  // properties come in the schema's order

bool IsTyped(const OrderedJson& schema, const OrderedJson& type) {
  const auto found = schema.find("type");
  if (found == schema.end()) return false;
  return found->is_array() ? std::count(found->begin(), found->end(), type) > 0 : *found == type;
}

bool AddItems(OrderedJson& schema) {
  if (!schema.contains("minItems") || !schema["minItems"].is_number_unsigned()) return false;
  if (schema.contains("items") || schema.contains("unevaluatedItems")) return false;
  if (!IsTyped(schema, "array") && !schema.contains("prefixItems")) return false;
  const bool has_prefix = schema.contains("prefixItems") && schema["prefixItems"].is_array();
  if (schema["minItems"].get<uint64_t>() <= (has_prefix ? schema["prefixItems"].size() : 0)) return false;
  schema["items"] = true;
  return true;
}

// A property that cannot be there may go where no other name may be there either.
bool DropImpossibleProperties(OrderedJson& schema) {
  if (!schema.contains("properties") || !schema["properties"].is_object()) return false;
  for (const char* const others : {"additionalProperties", "unevaluatedProperties"}) {
    if (schema.contains(others) && schema[others] != false) return false;
  }
  if (schema.contains("patternProperties")) return false;
  const auto is_required = [&](const std::string& name) {
    if (!schema.contains("required")) return false;
    return std::count(schema["required"].begin(), schema["required"].end(), OrderedJson(name)) > 0;
  };
  OrderedJson kept = OrderedJson::object();
  for (const auto& [name, value] : schema["properties"].items()) {
    if (value != false || is_required(name)) kept[name] = value;
  }
  const bool drops = kept.size() < schema["properties"].size();
  if (drops) schema["properties"] = std::move(kept);
  return drops;
}

// No integer lies between a bound and the next integer inside.
bool RoundBounds(OrderedJson& schema) {
  constexpr double kMostRounded = 0x1p53;  // larger doubles are integers
  if (!IsTyped(schema, "integer") || IsTyped(schema, "number")) return false;
  bool has_rounded = false;
  for (const char* const keyword : {"minimum", "exclusiveMaximum", "maximum", "exclusiveMinimum"}) {
    if (!schema.contains(keyword) || !schema[keyword].is_number_float()) continue;
    const auto bound = schema[keyword].get<double>();
    if (std::abs(bound) >= kMostRounded || std::floor(bound) == bound) continue;
    const bool rounds_up = keyword == absl::string_view("minimum") || keyword == absl::string_view("exclusiveMaximum");
    schema[keyword] = static_cast<int64_t>(rounds_up ? std::ceil(bound) : std::floor(bound));
    has_rounded = true;
  }
  return has_rounded;
}

// Returns whether anything changed.
bool Rewrite(OrderedJson& schema) {
  if (!schema.is_object()) return false;
  bool has_changed = AddItems(schema);
  has_changed |= DropImpossibleProperties(schema);
  has_changed |= RoundBounds(schema);
  for (const auto& [keyword, value] : schema.items()) {
    constexpr absl::string_view kMaps[] = {"properties", "patternProperties", "$defs", "definitions"};
    constexpr absl::string_view kOthers[] = {
        "anyOf",           "oneOf", "allOf", "items", "prefixItems", "additionalProperties", "unevaluatedProperties",
        "unevaluatedItems"};
    const auto is_in = [&, &name = keyword](const auto& names) {
      return std::ranges::find(names, name) != std::end(names);
    };
    if (is_in(kOthers) && value.is_object()) {
      has_changed |= Rewrite(value);
    } else if ((is_in(kOthers) && value.is_array()) || (is_in(kMaps) && value.is_object())) {
      for (OrderedJson& one : value) has_changed |= Rewrite(one);
    }
  }
  return has_changed;
}

bool RewriteTag(OrderedJson& tag) {
  bool has_changed = false;
  for (const auto& [key, value] : tag.items()) {
    if (tag.is_object() && key == "json_schema") {
      has_changed |= Rewrite(value);
    } else if (value.is_structured()) {
      has_changed |= RewriteTag(value);
    }
  }
  return has_changed;
}

std::string RewriteWith(bool (*rewrite)(OrderedJson&), const std::string& text) {
  absl::StatusOr<OrderedJson> json = base::ParseOrderedJson(text, "schema");
  return json.ok() && rewrite(*json) ? json->dump() : text;
}

}  // namespace

std::string RewriteSchema(const std::string& text) { return RewriteWith(Rewrite, text); }

std::string RewriteTagSchemas(const std::string& text) { return RewriteWith(RewriteTag, text); }

}  // namespace foretoken::verifier
