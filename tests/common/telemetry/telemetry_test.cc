// SPDX-License-Identifier: Apache-2.0
// Metrics over HTTP, and log levels. If this test fails, monitoring reads no metrics, or a wrong log level is not
// refused.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/telemetry/logging.h"
#include "common/telemetry/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace foretoken::telemetry {
namespace {

using ::testing::HasSubstr;

std::string HttpGet(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const std::string request = absl::StrCat("GET ", path, " HTTP/1.0\r\n\r\n");
  EXPECT_EQ(send(fd, request.data(), request.size(), 0), request.size());
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) answer.append(buffer, n);
  close(fd);
  return answer;
}

TEST(Metrics, AreShownOverHttp) {
  Metrics metrics;
  metrics.AddCounter("foretoken_test_things_total", "Things.", {{"kind", "a"}}).Increment(3);
  metrics.AddGauge("foretoken_test_level", "Level.").Set(7);
  metrics.AddHistogram("foretoken_test_wait_seconds", "Wait.", {0.1, 1}).Observe(0.5);
  const auto server = MetricsServer::Start("127.0.0.1:0", metrics);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string page = HttpGet((*server)->port(), "/metrics");
  EXPECT_THAT(page, HasSubstr("foretoken_test_things_total{kind=\"a\"} 3"));
  EXPECT_THAT(page, HasSubstr("foretoken_test_level 7"));
  EXPECT_THAT(page, HasSubstr("foretoken_test_wait_seconds_bucket{le=\"1\"} 1"));
}

TEST(Metrics, TheSameNameAndLabelsAreTheSameMetric) {
  Metrics metrics;
  EXPECT_EQ(&metrics.AddCounter("foretoken_test_total", "T."), &metrics.AddCounter("foretoken_test_total", "T."));
}

TEST(MetricsServer, NamesAnAddressThatCannotBeBound) {
  Metrics metrics;
  const auto server = MetricsServer::Start("nonsense", metrics);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(server.status().ToString(), HasSubstr("nonsense"));
}

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

}  // namespace
}  // namespace foretoken::telemetry
