// SPDX-License-Identifier: Apache-2.0
// If this test fails, a schema that everybody else follows is refused, or an output validates by another schema.
#include "verifier_service/grammar/schema_rewrite.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace foretoken::verifier {
namespace {

TEST(RewriteSchema, LetsAListHaveTheElementsThatItNeeds) {
  EXPECT_EQ(RewriteSchema(R"({"type":"array","minItems":2})"), R"({"type":"array","minItems":2,"items":true})");
  EXPECT_EQ(RewriteSchema(R"({"prefixItems":[{}],"minItems":2})"), R"({"prefixItems":[{}],"minItems":2,"items":true})");
  for (const char* const schema :
       {R"({"type":"array", "minItems":0})", R"({"type":"array", "minItems":2, "items":{}})",
        R"({"type":"array", "prefixItems":[{},{}], "minItems":2})", R"({"type":"array", "minItems":2, "items":false})",
        R"({"type":"string", "minItems":2})"}) {
    EXPECT_EQ(RewriteSchema(schema), schema);
  }
}

TEST(RewriteSchema, DropsPropertiesThatCannotBeThere) {
  EXPECT_EQ(RewriteSchema(R"({"properties":{"z":{},"b":false,"a":{}}})"), R"({"properties":{"z":{},"a":{}}})");
  for (const char* const schema :
       {R"({"properties":{"b": false},"required":["b"]})", R"({"properties":{"b": false},"additionalProperties":true})",
        R"({"properties":{"b": false},"patternProperties":{"^b":{}}})", R"({"properties":{"b": true}})"}) {
    EXPECT_EQ(RewriteSchema(schema), schema);
  }
}

TEST(RewriteSchema, RoundsTheBoundsOfIntegersInwards) {
  EXPECT_EQ(RewriteSchema(R"({"type":"integer","minimum":1.5,"maximum":8.5})"),
            R"({"type":"integer","minimum":2,"maximum":8})");
  EXPECT_EQ(RewriteSchema(R"({"type":["integer","null"],"exclusiveMinimum":-1.5,"exclusiveMaximum":-0.5})"),
            R"({"type":["integer","null"],"exclusiveMinimum":-2,"exclusiveMaximum":0})");
  for (const char* const schema : {R"({"type":"number", "minimum":1.5})", R"({"type":"integer", "minimum":1.0})",
                                   R"({"type":["integer","number"], "minimum":1.5})"}) {
    EXPECT_EQ(RewriteSchema(schema), schema);
  }
}

TEST(RewriteSchema, FindsEverySchemaAndNothingElse) {
  constexpr char kOld[] = R"({"type":"array","minItems":1})", kNew[] = R"({"type":"array","minItems":1,"items":true})";
  for (const auto& [before, after] : {std::pair(R"({"properties":{"items":)", "}}"),
                                      {R"({"$defs":{"a":)", "}}"},
                                      {R"({"anyOf":[)", "]}"},
                                      {R"({"type":"array","items":)", "}"},
                                      {R"({"additionalProperties":)", "}"},
                                      {R"({"prefixItems":[)", "]}"}}) {
    EXPECT_EQ(RewriteSchema(absl::StrCat(before, kOld, after)), absl::StrCat(before, kNew, after));
  }
  for (const auto& [before, after] :
       {std::pair(R"({"const":)", "}"), {R"({"enum":[)", "]}"}, {R"({"default":)", "}"}}) {
    EXPECT_EQ(RewriteSchema(absl::StrCat(before, kOld, after)), absl::StrCat(before, kOld, after));
  }
  EXPECT_EQ(RewriteTagSchemas(absl::StrCat(R"({"tags":[{"json_schema":)", kOld, "}]}")),
            absl::StrCat(R"({"tags":[{"json_schema":)", kNew, "}]}"));
  EXPECT_EQ(RewriteTagSchemas(kOld), kOld);
  EXPECT_EQ(RewriteSchema("{\"type\":"), "{\"type\":");
}

}  // namespace
}  // namespace foretoken::verifier
