// SPDX-License-Identifier: Apache-2.0
// Random forms of output, JSON schemas and regular expressions, each with a check that knows nothing of grammars.
// Outputs of these forms are short: strings and numbers are bounded.
#pragma once

#include <functional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/testing/cases/random_values.h"
#include "verifier_service/grammar/grammar.h"

namespace foretoken::testing {

struct RandomForm {
  verifier::GrammarSource source;
  std::function<bool(const std::string& text)> accepts;
};

struct RandomSchema {
  nlohmann::json schema;
  std::function<bool(const nlohmann::json& value)> accepts;
};

inline std::string RandomWord(RandomValues& random) {
  std::string word;
  for (int i = 1 + random.Below(8); i > 0; --i) word += "abcdefghij _-\"\\é€"[random.Below(14)];
  return word;
}

inline nlohmann::json RandomScalar(RandomValues& random) {
  switch (random.Below(5)) {
    case 0:
      return random.Below(1000) - 500;
    case 1:
      return random.Coin(0.5);
    case 2:
      return nullptr;
    default:
      return RandomWord(random);
  }
}

RandomSchema MakeSchema(int depth, RandomValues& random);

inline RandomSchema MakeEnum(RandomValues& random) {
  std::vector<nlohmann::json> values;
  for (int i = 1 + random.Below(4); i > 0; --i) values.push_back(RandomScalar(random));
  const auto accepts = [values](const nlohmann::json& value) { return std::ranges::count(values, value) > 0; };
  if (values.size() == 1) return {{{"const", values[0]}}, accepts};
  return {{{"enum", values}}, accepts};
}

inline RandomSchema MakeInteger(RandomValues& random) {
  const int least = random.Below(200) - 100, most = least + random.Below(300);
  return {{{"type", "integer"}, {"minimum", least}, {"maximum", most}}, [least, most](const nlohmann::json& value) {
            return value.is_number_integer() && value.get<int>() >= least && value.get<int>() <= most;
          }};
}

inline RandomSchema MakeString(RandomValues& random) {
  const int least = random.Below(3), most = 1 + least + random.Below(4);
  const std::string pattern = "^[a-z0-9]{" + std::to_string(least) + "," + std::to_string(most) + "}$";
  return {{{"type", "string"}, {"pattern", pattern}}, [pattern](const nlohmann::json& value) {
            return value.is_string() && std::regex_match(value.get<std::string>(), std::regex(pattern));
          }};
}

inline RandomSchema MakeArray(int depth, RandomValues& random) {
  RandomSchema items = MakeSchema(depth - 1, random);
  const size_t least = random.Below(2), most = least + 1 + random.Below(2);
  return {{{"type", "array"}, {"items", items.schema}, {"minItems", least}, {"maxItems", most}},
          [accepts = items.accepts, least, most](const nlohmann::json& value) {
            return value.is_array() && value.size() >= least && value.size() <= most &&
                   std::all_of(value.begin(), value.end(), accepts);
          }};
}

inline RandomSchema MakeObject(int depth, RandomValues& random) {
  struct Property {
    std::string name;
    RandomSchema schema;
    bool is_required;
  };
  std::vector<Property> properties;
  for (int i = 1 + random.Below(4); i > 0; --i) {
    properties.push_back({"p" + std::to_string(i) + "_" + std::string(1 + random.Below(6), 'x'),
                          MakeSchema(depth - 1, random), random.Coin(0.7)});
  }
  nlohmann::json schema = {{"type", "object"}, {"additionalProperties", false}, {"required", nlohmann::json::array()}};
  for (const Property& property : properties) {
    schema["properties"][property.name] = property.schema.schema;
    if (property.is_required) schema["required"].push_back(property.name);
  }
  return {schema, [properties](const nlohmann::json& value) {
            size_t num_known = 0;
            if (!value.is_object()) return false;
            for (const Property& property : properties) {
              const auto found = value.find(property.name);
              if (found == value.end() ? property.is_required : !property.schema.accepts(*found)) return false;
              num_known += found == value.end() ? 0 : 1;
            }
            return num_known == value.size();
          }};
}

inline RandomSchema MakeSchema(int depth, RandomValues& random) {
  const int kind = random.Below(depth > 0 ? 9 : 4);
  if (kind == 0) return MakeEnum(random);
  if (kind == 1) return MakeInteger(random);
  if (kind == 2) return MakeString(random);
  if (kind == 3) return {{{"type", "boolean"}}, [](const nlohmann::json& value) { return value.is_boolean(); }};
  if (kind == 4) return MakeArray(depth, random);
  if (kind == 5) {
    RandomSchema a = MakeSchema(depth - 1, random), b = MakeSchema(depth - 1, random);
    return {{{"anyOf", {a.schema, b.schema}}},
            [a, b](const nlohmann::json& value) { return a.accepts(value) || b.accepts(value); }};
  }
  return MakeObject(depth, random);
}

inline RandomForm RandomSchemaForm(RandomValues& random) {
  const RandomSchema schema = MakeSchema(3, random);
  return {.source = {.kind = verifier::GrammarKind::kJsonSchema, .text = schema.schema.dump()},
          .accepts = [accepts = schema.accepts](const std::string& text) {
            const nlohmann::json value = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
            return !value.is_discarded() && accepts(value);
          }};
}

inline std::string RandomPattern(int depth, RandomValues& random) {
  const auto quantified = [&](std::string atom) {
    switch (random.Below(4)) {
      case 0:
        return atom + "?";
      case 1:
        return atom + "{" + std::to_string(random.Below(2)) + "," + std::to_string(2 + random.Below(4)) + "}";
      default:
        return atom;
    }
  };
  std::string pattern;
  for (int i = 1 + random.Below(4); i > 0; --i) {
    switch (random.Below(depth > 0 ? 5 : 3)) {
      case 0:
        pattern += quantified(std::string("[") + static_cast<char>('a' + random.Below(20)) + "-z0-9]");
        break;
      case 1:
        pattern += std::string(1 + random.Below(5), static_cast<char>('a' + random.Below(26)));
        break;
      case 2:
        pattern += quantified("\\d");
        break;
      default:
        pattern += quantified("(" + RandomPattern(depth - 1, random) + "|" + RandomPattern(depth - 1, random) + ")");
    }
  }
  return pattern;
}

inline RandomForm RandomRegexForm(RandomValues& random) {
  const std::string pattern = "x" + RandomPattern(2, random);
  return {.source = {.kind = verifier::GrammarKind::kRegex, .text = pattern},
          .accepts = [pattern](const std::string& text) { return std::regex_match(text, std::regex(pattern)); }};
}

}  // namespace foretoken::testing
