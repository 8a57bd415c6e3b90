// SPDX-License-Identifier: Apache-2.0
// Parsing of foreign JSON. If this test fails, a damaged file crashes a server at start, or an error does not name the
// file.
#include "common/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::base {
namespace {

using ::testing::HasSubstr;

std::string Nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(ParseJson, AcceptsTheMostLevelsAndNoMore) {
  EXPECT_TRUE(ParseJson(Nested(kMaxJsonDepth), "x.json").ok());
  for (const size_t depth : {kMaxJsonDepth + 1, 1'000'000}) {
    const absl::Status status = ParseJson(Nested(depth), "x.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "x.json: expected JSON of at most 64 nested levels, got more");
  }
}

TEST(ParseJson, CountsNoBracketsInsideStrings) {
  const std::string brackets(1000, '{');
  const auto json = ParseJson("[\"" + brackets + "\\\"" + brackets + "\\\\\", \"[\"]", "x.json");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->at(0), brackets + "\"" + brackets + "\\");
  EXPECT_FALSE(ParseJson("[\"\\\\\", " + Nested(100) + "]", "x.json").ok());
}

TEST(ParseJson, NamesTheSourceOfTextThatIsNotJson) {
  const std::pair<const char*, const char*> texts[] = {
      {"", "1, byte 1"},   {"{", "1, byte 2"},    {"]", "1, byte 1"},    {"]]:", "1, byte 1"},
      {"\"", "1, byte 2"}, {"\"\\", "1, byte 3"}, {"[1,]", "1, byte 4"}, {"{\n \"a\": 1\n \"b\"", "3, byte 4"}};
  for (const auto& [text, place] : texts) {
    EXPECT_EQ(ParseJson(text, "x.json").status(),
              absl::InvalidArgumentError(absl::StrCat("x.json: not valid JSON from line ", place, " on")))
        << text;
  }
}

TEST(CountJsonValues, CountsWhatIsOutsideOfStrings) {
  EXPECT_EQ(CountJsonValues("1"), 1);
  EXPECT_EQ(CountJsonValues(R"({"a": [1, {}, "x"], "b": null})"), 7) << "the empty object counts for two";
  EXPECT_EQ(CountJsonValues(R"(["a,b[{\"", ",\\"])"), 3);
}

TEST(FindRepeatedName, FindsANameThatOneObjectHasTwice) {
  EXPECT_EQ(FindRepeatedName(R"({"a":1,"b":{"a":1},"c":[{"a":1},{"a":2}]})"), std::nullopt);
  EXPECT_EQ(FindRepeatedName(R"({"a":1,"b":2,"\u0061":3})"), "a");
  EXPECT_EQ(FindRepeatedName(R"({"a":[{"b":{"c":1,"c":1}}]})"), "c");
  for (const char* text : {"", "{", "7", "[]", "}{"}) EXPECT_EQ(FindRepeatedName(text), std::nullopt) << text;
}

std::string ObjectOf(int num_names) {
  std::string object = "{";
  for (int i = 0; i < num_names; ++i) absl::StrAppend(&object, i == 0 ? "" : ",", "\"", i, "\":\":\"");
  return object + "}";
}

// Else a text of a megabyte takes a thread for a minute.
TEST(ParseOrderedJson, AcceptsObjectsOfTheMostNamesAndNoMore) {
  constexpr int kMost = 1000;
  const std::string most = ObjectOf(kMost), more = ObjectOf(kMost + 1);
  EXPECT_TRUE(ParseOrderedJson(absl::StrCat("[", most, ",{\"a\":", most, ",\"b\":", most, "}]"), "x.json", kMost).ok());
  for (const std::string& text : {more, absl::StrCat("{\"a\":[", most, ",", more, "]}")}) {
    EXPECT_EQ(ParseOrderedJson(text, "x.json", kMost).status(),
              absl::InvalidArgumentError("x.json: expected JSON objects of at most 1000 names, got one with more"));
    EXPECT_TRUE(ParseOrderedJson(text, "x.json").ok());
  }
}

TEST(ReadJson, ReadsAFile) {
  const testing::TempDir dir;
  EXPECT_EQ(ReadJson(dir.Write("a.json", "[1]")).value(), nlohmann::json({1}));
  EXPECT_EQ(ReadJson(dir.path() + "/b.json").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace foretoken::base
