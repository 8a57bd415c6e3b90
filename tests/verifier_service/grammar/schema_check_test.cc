// SPDX-License-Identifier: Apache-2.0
// The check of JSON schemas. If this test fails, an output ends well and does not validate, or a schema that can be
// followed is refused.
#include "verifier_service/grammar/schema_check.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::verifier {
namespace {

absl::Status Check(const std::string& schema) { return CheckSchema(nlohmann::json::parse(schema)); }

TEST(CheckSchema, TakesWhatIsFollowed) {
  for (
      const char* const schema : {
          R"({})",
          R"(true)",
          R"({"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false})",
          R"({"properties":{"a":{"type":"array","items":{"$ref":"#/$defs/x"},"minItems":1}},"$defs":{"x":{"type":"null"}}})",
          R"({"type":["string","null"],"minLength":2})",
          R"({"type":"string","enum":["a","b"]})",
          R"({"type":"integer","const":3,"title":"three","description":"not a demand"})",
          R"({"anyOf":[{"type":"integer","minimum":3},{"type":"number","exclusiveMaximum":1}],"default":1})",
          R"({"allOf":[{"$ref":"#/$defs/x"}],"$defs":{"x":{"type":"boolean"}}})",
          R"({"type":"integer","multipleOf":5})",
          R"({"type":["integer","null"],"multipleOf":1024})",
          R"({"type":"integer","multipleOf":5,"minimum":-4999,"exclusiveMaximum":5000})",
          R"({"type":"array","prefixItems":[{"type":"string"}],"items":false,"uniqueItems":false})",
          R"({"type":"string","format":"date"})",
          R"({"type":"string","format":"our-own","maxLength":3})",
          R"({"type":"string","pattern":"^(?:a|b)+$"})",
          R"({"type":"object","properties":{"not":{"type":"string"},"if":{"type":"null"}}})",
          R"({"enum":[{"not":1}]})",
          R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$"},"additionalProperties":{"type":"null"}})",
          R"({"type":"object","propertyNames":{"$ref":"#/$defs/x"},"$defs":{"x":{"enum":["a"]}}})",
          R"({"type":"object","patternProperties":{"^a[0-9]":{"type":"null"},"^b":{"type":"string"}}})",
          R"({"type":"object","properties":{"id":{}},"required":["id"],"patternProperties":{"^x-":{}},
              "additionalProperties":false})",
          R"({"$ref":"#/shared/node","shared":{"node":{"type":"array","items":{"$ref":"#/shared/node"}}}})",
          R"({"type":"array","items":{"$ref":"#"}})",
          R"({"enum":[9223372036854775807,-9223372036854775808,0.5,"18446744073709551615"]})",
      }) {
    EXPECT_TRUE(Check(schema).ok()) << schema << ": " << Check(schema);
  }
}

TEST(CheckSchema, RefusesWhatWouldBePassedOverAndNamesThePlace) {
  struct Case {
    const char* schema;
    const char* error;
  };
  for (const Case& c : {
           Case{R"({"type":"array","items":{"enum":[1,2]},"uniqueItems":true})",
                R"(uniqueItems: is not supported beside type "array")"},
           Case{R"({"allOf":[{"type":"object"},{"required":["a"]}]})", "allOf: expected one schema"},
           Case{R"({"properties":{"a":{"items":{"not":{"type":"null"}}}}})",
                "properties.a.items: not: is not supported"},
           Case{R"({"not":{"type":"string"}})", "not: is not supported without a type"},
           Case{R"({"type":"object","if":{},"then":{}})", "if: is not supported"},
           Case{R"({"$ref":"#/$defs/x","minimum":3,"$defs":{"x":{"type":"integer"}}})",
                "minimum: is not supported beside $ref"},
           Case{R"({"anyOf":[{"type":"string"}],"maxLength":3})", "maxLength: is not supported beside anyOf"},
           Case{R"({"anyOf":[{"type":"string"},{"minimum":3}]})", "anyOf.1: minimum: is not supported without a type"},
           Case{R"({"type":"string","anyOf":[{"type":"string"},{"type":"null"}]})",
                "type: is not supported beside anyOf"},
           Case{R"({"type":"string","anyOf":[{"$ref":"#/$defs/x"}],"$defs":{"x":{"type":"string"}}})",
                "type: is not supported beside anyOf"},
           Case{R"({"type":"string","enum":["a",1]})", "type: is not supported beside enum"},
           Case{R"({"type":"string","const":null})", "type: is not supported beside const"},
           Case{R"({"type":"number","multipleOf":0.5})", "multipleOf: is not supported for numbers"},
           Case{R"({"type":["integer","number"],"multipleOf":5})", "multipleOf: is not supported for numbers"},
           Case{R"({"type":"integer","multipleOf":0.5})", "multipleOf: expected an integer from 1 to 1024"},
           Case{R"({"type":"integer","multipleOf":1025})", "multipleOf: expected an integer from 1 to 1024"},
           Case{R"({"multipleOf":5})", "multipleOf: is not supported"},
           Case{R"({"type":"integer","multipleOf":5,"minimum":1})", "multipleOf: expected no bounds, or two"},
           Case{R"({"type":"integer","multipleOf":5,"minimum":1,"maximum":10001})", "multipleOf: expected no bounds"},
           Case{R"({"type":"string","pattern":"a+","maxLength":3})", "pattern: is not supported beside minLength"},
           Case{R"({"type":"string","format":"uuid","minLength":3})", "format: is not supported beside minLength"},
           Case{R"({"type":"string","pattern":"^(?!a).*$"})", "pattern: lookahead"},
           Case{R"({"type":"string","pattern":"a^b"})", "pattern: anchors are not supported inside"},
           Case{R"({"type":"object","patternProperties":{"a$b":{}}})", "patternProperties: anchors are not supported"},
           Case{R"({"type":"string","pattern":"^a\\Z"})", "pattern: the escape \\Z is not supported"},
           Case{R"({"enum":[18446744073709551615]})", "enum: expected numbers from -2^63 to 2^63 - 1"},
           Case{R"({"const":{"a":[9223372036854775808]}})", "const: expected numbers from -2^63"},
           Case{R"({"const":1e300})", "const: expected numbers from -2^63"},
           Case{R"({"properties":{"a":{"enum":[-100000000000000000000]}}})", "properties.a: enum: expected numbers"},
           Case{R"({"$ref":"https://example.com/x.json"})", "$ref: expected a place in this schema"},
           Case{R"({"$ref":"#anchor"})", "$ref: expected a place in this schema"},
           Case{R"({"$ref":"#/shared/x","shared":{"x":{"type":"array","uniqueItems":true}}})",
                "shared.x: uniqueItems: is not supported"},
           Case{R"({"required":["a"]})", "required: is not supported without a type"},
           Case{R"({"type":"object","required":["a"]})", R"(required: expected names among properties, got "a")"},
           Case{R"({"type":"object","properties":{"a":{}},"required":["a","b"]})", R"(properties, got "b")"},
           Case{R"({"type":"object","additionalProperties":{"type":"null"},"required":["a"]})", R"(got "a")"},
           Case{R"({"$defs":{"x":{"type":"string","minimum":1}}})", "$defs.x: minimum"},
           Case{R"({"type":"object","propertyNames":{"minimum":1}})",
                R"(propertyNames: minimum: is not supported beside type "string")"},
           Case{R"({"type":"object","propertyNames":{"maxLength":3},"patternProperties":{"^a":{}}})",
                "propertyNames: is not supported beside patternProperties"},
           Case{R"({"type":"object","propertyNames":{"maxLength":3},"properties":{"long":{}}})",
                "propertyNames: is not supported beside properties"},
           Case{R"({"type":"object","propertyNames":{"enum":["a",1]}})", "propertyNames: expected a schema that says"},
           Case{R"({"type":"object","propertyNames":{"type":["string","null"]}})", "propertyNames: expected a schema"},
           Case{R"({"type":"object","propertyNames":{"$ref":"#/$defs/x"},"$defs":{"x":{}}})",
                "propertyNames: expected a schema that says"},
           Case{R"({"type":"object","patternProperties":{"^a":{"type":"null"},"b$":{"type":"string"}}})",
                "patternProperties: expected patterns that begin with other letters"},
           Case{R"({"type":"object","patternProperties":{"^a":{"type":"null"},"^ab":{"type":"string"}}})",
                "patternProperties: expected patterns that begin with other letters"},
           Case{R"({"type":"object","patternProperties":{"^ab?":{"type":"null"},"^ac":{"type":"string"}}})",
                "patternProperties: expected patterns that begin with other letters"},
           Case{R"({"type":"object","patternProperties":{"^a|c":{"type":"null"},"^b":{"type":"string"}}})",
                "patternProperties: expected patterns that begin with other letters"},
           Case{R"({"type":"object","properties":{"x-id":{}},"patternProperties":{"^x-":{"type":"string"}}})",
                "patternProperties: expected patterns that begin with other letters"},
           Case{
               R"({"type":"object","properties":{"id":{}},"patternProperties":{"^x-":{}},"additionalProperties":true})",
               "additionalProperties: is not supported beside properties and patternProperties"},
       }) {
    const absl::Status status = Check(c.schema);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.schema;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(c.error)) << c.schema;
  }
}

// Keywords that XGrammar never follows, each beside the type that it is about.
TEST(CheckSchema, RefusesEveryKeywordThatIsNeverFollowedByName) {
  struct Case {
    const char* keyword;
    const char* schema;
  };
  for (const Case& c : {
           Case{"not", R"({"type":"string","not":{"const":"a"}})"},
           Case{"if", R"({"type":"object","if":{"required":["a"]}})"},
           Case{"then", R"({"type":"object","then":{"required":["a"]}})"},
           Case{"else", R"({"type":"object","else":{"required":["a"]}})"},
           Case{"$dynamicRef", R"({"type":"object","$dynamicRef":"#node"})"},
           Case{"$recursiveRef", R"({"type":"object","$recursiveRef":"#"})"},
           Case{"contains", R"({"type":"array","contains":{"const":1}})"},
           Case{"minContains", R"({"type":"array","minContains":2})"},
           Case{"maxContains", R"({"type":"array","maxContains":2})"},
           Case{"uniqueItems", R"({"type":"array","uniqueItems":true})"},
           Case{"additionalItems", R"({"type":"array","additionalItems":false})"},
           Case{"dependencies", R"({"type":"object","dependencies":{"a":["b"]}})"},
           Case{"dependentRequired", R"({"type":"object","dependentRequired":{"a":["b"]}})"},
           Case{"dependentSchemas", R"({"type":"object","dependentSchemas":{"a":{}}})"},
       }) {
    const std::string error = std::string(Check(c.schema).message());
    EXPECT_THAT(error, ::testing::StartsWith(std::string(c.keyword) + ": is not supported beside type")) << c.schema;
  }
}

TEST(CheckTag, ChecksEverySchemaOfATag) {
  const auto tag = [](const std::string& schema) {
    return nlohmann::json::parse(R"({"type":"structural_tag","format":{"type":"triggered_tags","tags":[
        {"begin":"<a>","content":{"type":"json_schema","json_schema":)" +
                                 schema + R"(},"end":"</a>"}],"triggers":["<a>"]}})");
  };
  EXPECT_TRUE(CheckTag(tag(R"({"type":"object"})")).ok());
  EXPECT_FALSE(CheckTag(tag(R"({"type":"array","uniqueItems":true})")).ok());
}

TEST(CheckTag, ChecksEveryRegularExpressionOfATag) {
  const auto check = [](const std::string& pattern) {
    return CheckTag(nlohmann::json::parse(R"({"type":"structural_tag","format":{"type":"sequence","elements":[
        {"type":"json_schema","json_schema":{"enum":[{"type":"regex","pattern":"a^b"}]}},
        {"type":"regex","pattern":")" + pattern +
                                          R"("}]}})"));
  };
  EXPECT_TRUE(check("^a|b$").ok());
  EXPECT_EQ(check("a^b").message(), "pattern: anchors are not supported inside");
  EXPECT_EQ(check("\\\\Aa").message(), "pattern: the escape \\A is not supported");
}

}  // namespace
}  // namespace foretoken::verifier
