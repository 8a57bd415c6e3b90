// SPDX-License-Identifier: Apache-2.0
// Logs. If this test fails, a wrong log level is not refused, or a text of others breaks the lines.
#include "common/telemetry/logging.h"

#include <algorithm>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace foretoken::telemetry {
namespace {

using ::testing::HasSubstr;

// Restores the usual form of the lines.
class Logging : public ::testing::Test {
 protected:
  ~Logging() override { EXPECT_TRUE(InitLogging("warning").ok()); }
  static std::vector<nlohmann::json> JsonLines(const std::string& text) {
    std::vector<nlohmann::json> lines;
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      lines.push_back(nlohmann::json::parse(line.begin(), line.end()));
    }
    return lines;
  }
};

TEST_F(Logging, RefusesUnknownLevelsAndFormats) {
  EXPECT_EQ(InitLogging("loud").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(InitLogging("info", "xml").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(InitLogging("warning").ok());
  EXPECT_TRUE(InitLogging("off").ok());
}

TEST_F(Logging, ALineOfJsonIsOneObjectForAnyText) {
  ASSERT_TRUE(InitLogging("info", "json").ok());
  const std::string hostile = "a\"b\n\x1b\xff\xc3\xa9";
  ::testing::internal::CaptureStderr();
  spdlog::info("{}", hostile);
  LogEvent(spdlog::level::warn, "it ended", {{"id", hostile}, {"tokens", int64_t{3}}, {"ms", 1.5}});
  LogEvent(spdlog::level::debug, "below the level", {});
  const std::vector<nlohmann::json> lines = JsonLines(::testing::internal::GetCapturedStderr());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["level"], "info");
  EXPECT_EQ(lines[0]["message"], "a\"b\n\x1b\xef\xbf\xbd\xc3\xa9");
  EXPECT_EQ(lines[1]["message"], "it ended");
  EXPECT_EQ(lines[1]["id"], lines[0]["message"]);
  EXPECT_EQ(lines[1]["tokens"], 3);
  EXPECT_EQ(lines[1]["ms"], 1.5);
  EXPECT_EQ(lines[1]["time"].get<std::string>().size(), std::string("2026-11-23T10:00:00.000Z").size());
}

TEST_F(Logging, AnEventAsTextIsOneLineWithItsFields) {
  ASSERT_TRUE(InitLogging("info").ok());
  ::testing::internal::CaptureStderr();
  LogEvent(spdlog::level::info, "it ended", {{"id", "a\nb"}, {"tokens", int64_t{3}}});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(" it ended: id=\"a\\nb\" tokens=3\n"));
}

TEST_F(Logging, ALongTextIsCut) {
  ASSERT_TRUE(InitLogging("info", "json").ok());
  ::testing::internal::CaptureStderr();
  LogEvent(spdlog::level::info, "it ended", {{"id", std::string(10'000, 'x')}});
  const std::vector<nlohmann::json> lines = JsonLines(::testing::internal::GetCapturedStderr());
  EXPECT_EQ(lines.at(0)["id"].get<std::string>().size(), 256u);
}

// A file's names may have megabytes, and look like lines of the log.
TEST_F(Logging, AMessageIsOneLineOfBoundedLength) {
  const std::string message = absl::StrCat("a\nb\r", std::string(10'000, 'x'));
  ASSERT_TRUE(InitLogging("info").ok());
  ::testing::internal::CaptureStderr();
  spdlog::info("{}", message);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr(" a\\nb\\rxxx"));
  EXPECT_EQ(std::ranges::count(text, '\n'), 1);
  EXPECT_THAT(text, HasSubstr("x... (10004 bytes)\n"));
  ASSERT_TRUE(InitLogging("info", "json").ok());
  ::testing::internal::CaptureStderr();
  spdlog::info("{}", message);
  EXPECT_LT(::testing::internal::GetCapturedStderr().size(), 9000u);
}

// As the allocation calls it.
TEST_F(Logging, TheEndForWantOfMemoryIsALineInTheFormOfTheLog) {
  const auto end = [](absl::string_view format) {
    ASSERT_TRUE(InitLogging("info", format).ok());
    EndIfMemoryRunsOut();
    std::get_new_handler()();
  };
  EXPECT_EXIT(end("text"), ::testing::ExitedWithCode(1), "^[-0-9]+T[:0-9]+[.][0-9]+Z critical no memory is left .*\n$");
  EXPECT_EXIT(
      end("json"), ::testing::ExitedWithCode(1),
      "^.\"time\":\"[-0-9]+T[:0-9]+[.][0-9]+Z\",\"level\":\"critical\",\"message\":\"no memory is left .*\".\n$");
}

}  // namespace
}  // namespace foretoken::telemetry
