// SPDX-License-Identifier: Apache-2.0
// Parsing of foreign JSON. If this test fails, a damaged file crashes a server at start, or an error does not name the
// file.
#include "common/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

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
  for (const char* text : {"", "{", "]", "\"", "\"\\", "[1,]"}) {
    EXPECT_EQ(ParseJson(text, "x.json").status(), absl::InvalidArgumentError("x.json: not valid JSON")) << text;
  }
}

TEST(ReadJson, ReadsAFile) {
  const testing::TempDir dir;
  EXPECT_EQ(ReadJson(dir.Write("a.json", "[1]")).value(), nlohmann::json({1}));
  EXPECT_EQ(ReadJson(dir.path() + "/b.json").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace foretoken::base
