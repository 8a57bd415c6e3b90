// SPDX-License-Identifier: Apache-2.0
// Random forms of output, JSON schemas and regular expressions, each with a check that knows nothing of grammars.
// Outputs of these forms are short: strings and numbers are bounded.
#pragma once

#include <algorithm>
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

// An integer, or a number, within bounds that belong to it or not, and perhaps null. Integers may be multiples.
inline RandomSchema MakeNumber(RandomValues& random) {
  const bool is_integer = random.Coin(0.7), has_least = random.Coin(0.7), has_most = random.Coin(0.7);
  const bool may_be_null = random.Coin(0.2);
  const int least = random.Below(200) - 100, most = least + 2 + random.Below(300);
  const std::string type = is_integer ? "integer" : "number";
  nlohmann::json schema = {{has_least ? "minimum" : "exclusiveMinimum", least},
                           {has_most ? "maximum" : "exclusiveMaximum", most},
                           {"type", type}};
  if (may_be_null) schema["type"] = {type, "null"};
  const int num_inside = most - least - 1;  // one of them at least is a multiple
  const int divisor = is_integer && num_inside > 1 && random.Coin(0.4) ? 2 + random.Below(num_inside - 1) : 1;
  if (divisor > 1) schema["multipleOf"] = divisor;
  return {schema, [=](const nlohmann::json& value) {
            if (value.is_null()) return may_be_null;
            if (is_integer ? !value.is_number_integer() : !value.is_number()) return false;
            if (is_integer && value.get<int64_t>() % divisor != 0) return false;
            const auto number = value.get<double>();
            return (has_least ? number >= least : number > least) && (has_most ? number <= most : number < most);
          }};
}

// Well-formed UTF-8 as code points.
inline std::wstring CodePoints(const std::string& text) {
  std::wstring points;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) == 0x80 && !points.empty()) {
      points.back() = static_cast<wchar_t>(points.back() << 6 | (byte & 0x3F));
    } else {
      points.push_back(static_cast<wchar_t>(byte < 0x80 ? byte
                                                        : byte & (byte >= 0xF0   ? 0x07
                                                                  : byte >= 0xE0 ? 0x0F
                                                                                 : 0x1F)));
    }
  }
  return points;
}

// Whether the pattern matches the whole text. Its dots stand for themselves nowhere.
inline bool MatchesPattern(const std::string& text, const std::string& pattern) {
  std::wstring of_points;
  for (const char c : pattern)
    of_points += c == '.' ? std::wstring(L"[^\n]") : std::wstring(1, static_cast<wchar_t>(c));
  // Without backtracking, which an ambiguous pattern would make endless.
  const auto flags = std::regex_constants::ECMAScript | std::regex_constants::__polynomial;
  return std::regex_match(CodePoints(text), std::wregex(of_points, flags));
}

inline RandomSchema MatchedString(nlohmann::json schema, const std::string& pattern) {
  schema["type"] = "string";
  return {std::move(schema), [pattern](const nlohmann::json& value) {
            return value.is_string() && std::regex_match(value.get<std::string>(), std::regex(pattern));
          }};
}

// A class that stands for a character, in a pattern of ASCII; wide: it may be a class of nearly all characters.
inline std::string RandomClass(bool may_be_wide, RandomValues& random) {
  const auto letter = static_cast<char>('a' + random.Below(20));
  switch (may_be_wide ? random.Below(6) : 5) {
    case 0:
      return ".";
    case 1:
      return "[^0-9]";
    case 2:
      return std::string("[^") + letter + "-z ]";
    case 3:
      return random.Coin(0.5) ? "\\S" : "\\D";
    default:
      return std::string("[") + letter + "-z0-9]";
  }
}

// A string of characters of a class. Beyond 128 XGrammar counts them while it matches.
inline RandomSchema MakePatterned(const std::string& bounds, RandomValues& random) {
  const std::string large = "{1," + std::to_string(129 + random.Below(8)) + "}";
  const std::string pattern = RandomClass(/*may_be_wide=*/true, random) + (random.Coin(0.2) ? large : bounds);
  return {{{"type", "string"}, {"pattern", "^" + pattern + "$"}}, [pattern](const nlohmann::json& value) {
            return value.is_string() && MatchesPattern(value.get<std::string>(), pattern);
          }};
}

inline RandomSchema MakeString(RandomValues& random) {
  const int least = random.Below(3), most = 1 + least + (random.Coin(0.2) ? 10 + random.Below(20) : random.Below(4));
  const std::string bounds = "{" + std::to_string(least) + "," + std::to_string(most) + "}";
  switch (random.Below(8)) {
    case 0:
      return MatchedString({{"format", "date"}}, "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])");
    case 1:
      return MatchedString({{"format", "uuid"}}, "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}");
    case 2:  // zeros may stand in front (RFC 2673, section 3.2)
      return MatchedString({{"format", "ipv4"}},
                           "(25[0-5]|2[0-4][0-9]|[01]?[0-9]?[0-9])(\\.(25[0-5]|2[0-4][0-9]|[01]?[0-9]?[0-9])){3}");
    case 3:
    case 4:
      return {{{"type", "string"}, {"minLength", least}, {"maxLength", most}}, [=](const nlohmann::json& value) {
                if (!value.is_string()) return false;
                const auto text = value.get<std::string>();
                const auto num_characters = std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
                return num_characters >= least && num_characters <= most;
              }};
    default:
      return MakePatterned(bounds, random);
  }
}

// A list whose first elements have schemas of their own.
inline RandomSchema MakeTuple(int depth, RandomValues& random) {
  std::vector<RandomSchema> elements;
  nlohmann::json schemas = nlohmann::json::array();
  for (int i = 1 + random.Below(3); i > 0; --i) {
    elements.push_back(MakeSchema(depth - 1, random));
    schemas.push_back(elements.back().schema);
  }
  const std::string others = random.Coin(0.5) ? "items" : "unevaluatedItems";
  return {{{"type", "array"}, {"prefixItems", schemas}, {others, false}, {"minItems", elements.size()}},
          [elements](const nlohmann::json& value) {
            if (!value.is_array() || value.size() != elements.size()) return false;
            for (size_t i = 0; i < elements.size(); ++i) {
              if (!elements[i].accepts(value[i])) return false;
            }
            return true;
          }};
}

// An object whose names are not known, but for their pattern. Its names may repeat, so it has no least number of them.
inline RandomSchema MakeMap(int depth, RandomValues& random) {
  const RandomSchema values = MakeSchema(depth - 1, random);
  const std::string pattern = "^k[a-z]{0,2}$";
  const size_t most = 1 + random.Below(3);
  nlohmann::json schema = {{"type", "object"}, {"maxProperties", most}};
  if (random.Coin(0.5)) {
    schema["patternProperties"][pattern] = values.schema;
    schema[random.Coin(0.5) ? "additionalProperties" : "unevaluatedProperties"] = false;
  } else {
    schema["propertyNames"]["pattern"] = pattern;
    schema["additionalProperties"] = values.schema;
  }
  return {schema, [=](const nlohmann::json& value) {
            if (!value.is_object() || value.size() > most) return false;
            return std::ranges::all_of(value.items(), [&](const auto& property) {
              return std::regex_match(property.key(), std::regex("k[a-z]{0,2}")) && values.accepts(property.value());
            });
          }};
}

// One of several schemas, in one of the ways to say so.
inline RandomSchema MakeCombination(int depth, RandomValues& random) {
  const RandomSchema a = MakeSchema(depth - 1, random);
  if (random.Coin(0.2)) return {{{"allOf", nlohmann::json::array({a.schema})}}, a.accepts};
  const RandomSchema b = MakeSchema(depth - 1, random);
  return {{{random.Coin(0.5) ? "anyOf" : "oneOf", {a.schema, b.schema}}},
          [a, b](const nlohmann::json& value) { return a.accepts(value) || b.accepts(value); }};
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
  nlohmann::json schema = {{"type", "object"}, {"required", nlohmann::json::array()}};
  schema[random.Coin(0.8) ? "additionalProperties" : "unevaluatedProperties"] = false;
  for (const Property& property : properties) {
    schema["properties"][property.name] = property.schema.schema;
    if (property.is_required) schema["required"].push_back(property.name);
  }
  const size_t least = random.Coin(0.3) ? random.Below(static_cast<int>(properties.size()) + 1) : 0;
  const size_t most = std::max({least, schema["required"].size(), properties.size() - random.Below(2)});
  if (random.Coin(0.5) || least > 0) schema["minProperties"] = least;
  if (random.Coin(0.5) || most < properties.size()) schema["maxProperties"] = most;
  return {schema, [properties, least, most](const nlohmann::json& value) {
            size_t num_known = 0;
            if (!value.is_object() || value.size() < least || value.size() > most) return false;
            for (const Property& property : properties) {
              const auto found = value.find(property.name);
              if (found == value.end() ? property.is_required : !property.schema.accepts(*found)) return false;
              num_known += found == value.end() ? 0 : 1;
            }
            return num_known == value.size();
          }};
}

inline RandomSchema MakeSchema(int depth, RandomValues& random) {
  const int kind = random.Below(depth > 0 ? 11 : 4);
  if (kind == 0) return MakeEnum(random);
  if (kind == 1) return MakeNumber(random);
  if (kind == 2) return MakeString(random);
  if (kind == 3) return {{{"type", "boolean"}}, [](const nlohmann::json& value) { return value.is_boolean(); }};
  if (kind == 4) return MakeArray(depth, random);
  if (kind == 5) return MakeTuple(depth, random);
  if (kind == 6) return MakeMap(depth, random);
  if (kind == 7) return MakeCombination(depth, random);
  return MakeObject(depth, random);
}

// A list of two values of a schema that stands once.
inline RandomSchema MakePair(RandomValues& random) {
  const RandomSchema value = MakeSchema(2, random);
  const std::string place = random.Coin(0.5) ? "$defs" : "definitions";
  return {{{place, {{"value", value.schema}}},
           {"type", "array"},
           {"items", {{"$ref", "#/" + place + "/value"}}},
           {"minItems", 2},
           {"maxItems", 2}},
          [accepts = value.accepts](const nlohmann::json& pair) {
            return pair.is_array() && pair.size() == 2 && accepts(pair[0]) && accepts(pair[1]);
          }};
}

inline RandomForm RandomSchemaForm(RandomValues& random) {
  const RandomSchema schema = random.Coin(0.1) ? MakePair(random) : MakeSchema(3, random);
  return {.source = {.kind = verifier::GrammarKind::kJsonSchema, .text = schema.schema.dump()},
          .accepts = [accepts = schema.accepts](const std::string& text) {
            const nlohmann::json value = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
            return !value.is_discarded() && accepts(value);
          }};
}

inline constexpr int kRegexDepth = 2;  // of groups

// Wide classes stand outside of groups: repeated in a group that is repeated itself, they give a text more parses than
// the matcher follows.
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
        pattern += quantified(RandomClass(/*may_be_wide=*/depth == kRegexDepth, random));
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
  const std::string pattern = "x" + RandomPattern(kRegexDepth, random);
  return {.source = {.kind = verifier::GrammarKind::kRegex, .text = pattern},
          .accepts = [pattern](const std::string& text) { return MatchesPattern(text, pattern); }};
}

}  // namespace foretoken::testing
