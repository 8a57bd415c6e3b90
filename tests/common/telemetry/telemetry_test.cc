// SPDX-License-Identifier: Apache-2.0
// Metrics over HTTP, and log levels. If this test fails, monitoring reads no metrics, or a wrong log level is not
// refused.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/telemetry/logging.h"
#include "common/telemetry/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

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

TEST(InitLogging, RefusesUnknownLevels) {
  EXPECT_EQ(InitLogging("loud").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(InitLogging("warning").ok());
  EXPECT_TRUE(InitLogging("off").ok());
}

}  // namespace
}  // namespace foretoken::telemetry
