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
          R"({"type":"array","prefixItems":[{"type":"string"}],"items":false,"uniqueItems":false})",
          R"({"type":"string","format":"date"})",
          R"({"type":"string","format":"our-own","maxLength":3})",
          R"({"type":"string","pattern":"^(?:a|b)+$"})",
          R"({"type":"object","properties":{"not":{"type":"string"},"if":{"type":"null"}}})",
          R"({"enum":[{"not":1}]})",
          R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$"},"additionalProperties":{"type":"null"}})",
          R"({"type":"object","propertyNames":{"$ref":"#/$defs/x"},"$defs":{"x":{"enum":["a"]}}})",
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
           Case{R"({"type":"number","multipleOf":0.5})", "multipleOf"},
           Case{R"({"type":"integer","multipleOf":5,"minimum":1})", "multipleOf: is not supported beside bounds"},
           Case{R"({"type":"string","pattern":"a+","maxLength":3})", "pattern: is not supported beside minLength"},
           Case{R"({"type":"string","format":"uuid","minLength":3})", "format: is not supported beside minLength"},
           Case{R"({"type":"string","pattern":"^(?!a).*$"})", "pattern: lookahead"},
           Case{R"({"$ref":"https://example.com/x.json"})", "$ref: expected a place in this schema"},
           Case{R"({"required":["a"]})", "required: is not supported without a type"},
           Case{R"({"type":"object","dependentRequired":{"a":["b"]}})", "dependentRequired"},
           Case{R"({"type":"array","contains":{"const":1}})", "contains"},
           Case{R"({"$defs":{"x":{"type":"string","minimum":1}}})", "$defs.x: minimum"},
           Case{R"({"type":"object","propertyNames":{"minimum":1}})",
                R"(propertyNames: minimum: is not supported beside type "string")"},
           Case{R"({"type":"object","propertyNames":{"maxLength":3},"patternProperties":{"^a":{}}})",
                "propertyNames: is not supported beside patternProperties"},
       }) {
    const absl::Status status = Check(c.schema);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.schema;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(c.error)) << c.schema;
  }
}

TEST(CheckTagSchemas, ChecksEverySchemaOfATag) {
  const auto tag = [](const std::string& schema) {
    return nlohmann::json::parse(R"({"type":"structural_tag","format":{"type":"triggered_tags","tags":[
        {"begin":"<a>","content":{"type":"json_schema","json_schema":)" +
                                 schema + R"(},"end":"</a>"}],"triggers":["<a>"]}})");
  };
  EXPECT_TRUE(CheckTagSchemas(tag(R"({"type":"object"})")).ok());
  EXPECT_FALSE(CheckTagSchemas(tag(R"({"type":"array","uniqueItems":true})")).ok());
}

}  // namespace
}  // namespace foretoken::verifier
