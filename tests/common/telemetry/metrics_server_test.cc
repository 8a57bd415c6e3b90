// SPDX-License-Identifier: Apache-2.0
// Metrics over HTTP. If this test fails, monitoring reads no metrics, or wrong ones, or dashboards find no trace of a
// slow request.
#include "common/telemetry/metrics_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/steady_clock.h"
#include "common/telemetry/open_metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"

namespace foretoken::telemetry {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAreArray;

int Connect(int port, const std::string& host = "127.0.0.1") {
  const addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
  addrinfo* address = nullptr;
  EXPECT_EQ(getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &address), 0);
  const int fd = socket(address->ai_family, SOCK_STREAM, 0);
  EXPECT_EQ(connect(fd, address->ai_addr, address->ai_addrlen), 0) << host;
  freeaddrinfo(address);
  return fd;
}

std::string ReadAll(int fd) {
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) answer.append(buffer, n);
  return answer;
}

std::string HttpRequest(int port, const std::string& method, const std::string& path, const std::string& headers = "",
                        const std::string& host = "127.0.0.1") {
  const int fd = Connect(port, host);
  const std::string request = absl::StrCat(method, " ", path, " HTTP/1.0\r\n", headers, "\r\n");
  EXPECT_EQ(send(fd, request.data(), request.size(), 0), request.size());
  const std::string answer = ReadAll(fd);
  close(fd);
  return answer;
}

std::string HttpGet(int port, const std::string& path, const std::string& headers = "") {
  return HttpRequest(port, "GET", path, headers);
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
  for (const std::string address : {"nonsense", "127.0.0.1:70000", ":9100"}) {
    const auto server = MetricsServer::Start(address, metrics);
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(server.status().ToString(), HasSubstr(address));
  }
  EXPECT_EQ(MetricsServer::Start("nonsense:1", metrics).status().code(), absl::StatusCode::kUnavailable);
  const auto taken = MetricsServer::Start("0.0.0.0:0", metrics);
  ASSERT_TRUE(taken.ok()) << taken.status();
  const std::string address = absl::StrCat("[::]:", (*taken)->port());
  EXPECT_THAT(MetricsServer::Start(address, metrics).status().ToString(),
              AllOf(HasSubstr(address), HasSubstr("in use")));
}

bool HasIpv6() {
  const int fd = socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  const bool has = bind(fd, reinterpret_cast<const sockaddr*>(&loopback), sizeof(loopback)) == 0;
  close(fd);
  return has;
}

TEST(MetricsServer, ListensOnIpv6AndIpv4) {
  Metrics metrics;
  for (const char* address : {"0.0.0.0:0", "[::]:0"}) {
    const auto server = MetricsServer::Start(address, metrics);
    ASSERT_TRUE(server.ok()) << server.status();
    EXPECT_THAT(HttpGet((*server)->port(), "/metrics"), StartsWith("HTTP/1.0 200")) << address;
    if (!HasIpv6()) continue;
    EXPECT_THAT(HttpRequest((*server)->port(), "GET", "/metrics", "", "::1"), StartsWith("HTTP/1.0 200")) << address;
  }
  if (!HasIpv6()) GTEST_SKIP() << "no IPv6 here";
  const auto server = MetricsServer::Start("[::1]:0", metrics);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(HttpRequest((*server)->port(), "GET", "/metrics", "", "::1"), StartsWith("HTTP/1.0 200"));
}

// Many machines resolve localhost to ::1 first.
TEST(MetricsServer, ListensOnEveryAddressOfAName) {
  Metrics metrics;
  const auto server = MetricsServer::Start("localhost:0", metrics);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(HttpGet((*server)->port(), "/metrics"), StartsWith("HTTP/1.0 200"));
}

TEST(MetricsServer, AnswersInTheFormatThatTheClientAccepts) {
  Metrics metrics;
  metrics.AddCounter("foretoken_test_total", "T.").Increment(3);
  const auto server = MetricsServer::Start("127.0.0.1:0", metrics);
  const std::string text = HttpGet((*server)->port(), "/metrics", "Accept: text/plain\r\n");
  EXPECT_THAT(text, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(text, HasSubstr("# TYPE foretoken_test_total counter"));
  const std::string open =
      HttpGet((*server)->port(), "/metrics", "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n");
  EXPECT_THAT(open, HasSubstr("Content-Type: application/openmetrics-text; version=1.0.0"));
  EXPECT_THAT(open, HasSubstr("# TYPE foretoken_test counter\nforetoken_test_total 3\n# EOF\n"));
}

TEST(MetricsServer, HasNothingAtOtherPathsAndByOtherMethods) {
  Metrics metrics;
  const auto server = MetricsServer::Start("127.0.0.1:0", metrics);
  const std::string hint = HttpGet((*server)->port(), "/");
  EXPECT_THAT(hint, StartsWith("HTTP/1.0 404"));
  EXPECT_THAT(hint, EndsWith("\r\n\r\nmetrics are at /metrics\n"));
  EXPECT_THAT(HttpGet((*server)->port(), "/metrics/all"), StartsWith("HTTP/1.0 404"));
  const std::string refused = HttpRequest((*server)->port(), "POST", "/metrics");
  EXPECT_THAT(refused, StartsWith("HTTP/1.0 405"));
  EXPECT_THAT(refused, HasSubstr("Allow: GET, HEAD"));
  EXPECT_THAT(HttpRequest((*server)->port(), "HEAD", "/metrics"), EndsWith("\r\n\r\n"));
}

TEST(MetricsServer, SilentAndSlowConnectionsDoNotStopIt) {
  Metrics metrics;
  metrics.AddGauge("foretoken_test_level", "Level.").Set(7);
  const auto server = MetricsServer::Start("127.0.0.1:0", metrics);
  std::vector<int> clients;
  for (size_t i = 0; i < 4 * MetricsServer::kMaxConnections; ++i) clients.push_back(Connect((*server)->port()));
  std::atomic<bool> is_over = false;
  std::thread slow([&] {  // a byte now and then, of a request that never ends
    for (int i = 0; !is_over; ++i) {
      send(clients.back(), i == 0 ? "GET /metrics HTTP/1.1\r\nA: " : "a", i == 0 ? 26 : 1, MSG_NOSIGNAL);
      absl::SleepFor(absl::Milliseconds(20));
    }
  });
  const absl::Time begin = SteadyNow();
  EXPECT_THAT(HttpGet((*server)->port(), "/metrics"), HasSubstr("foretoken_test_level 7"));
  EXPECT_LT(SteadyNow() - begin, MetricsServer::kMaxTime / 2);
  for (const int fd : clients) EXPECT_EQ(ReadAll(fd), "");
  is_over = true;
  slow.join();
  for (const int fd : clients) close(fd);
}

TEST(MetricsServer, ConnectionsThatDoNotReadThePageDoNotStopIt) {
  Metrics metrics;
  metrics.AddGauge("foretoken_test_level", std::string(8 << 20, 'h')).Set(7);  // more than sockets take by themselves
  const auto server = MetricsServer::Start("127.0.0.1:0", metrics);
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  const auto expect_page = [&] {
    EXPECT_TRUE(absl::EndsWith(HttpGet((*server)->port(), "/metrics"), "foretoken_test_level 7\n"));
  };
  absl::Time begin = SteadyNow();
  expect_page();
  const absl::Duration page_time = SteadyNow() - begin;  // with sanitizers a fifth of a second
  std::vector<int> clients;
  for (size_t i = 0; i < MetricsServer::kMaxConnections; ++i) {
    clients.push_back(Connect((*server)->port()));
    EXPECT_EQ(send(clients.back(), request.data(), request.size(), 0), request.size());
  }
  begin = SteadyNow();
  expect_page();
  EXPECT_LT(SteadyNow() - begin, MetricsServer::kMaxTime / 2 + 2 * MetricsServer::kMaxConnections * page_time);
  for (const int fd : clients) close(fd);
}

TEST(MetricsServer, ClosesAConnectionWithALargeRequest) {
  Metrics metrics;
  const auto server = MetricsServer::Start("127.0.0.1:0", metrics);
  const std::string large = absl::StrCat("A: ", std::string(2 * MetricsServer::kMaxRequestBytes, 'a'), "\r\n");
  EXPECT_EQ(HttpGet((*server)->port(), "/metrics", large), "");
  EXPECT_THAT(HttpGet((*server)->port(), "/metrics"), StartsWith("HTTP/1.0 200"));
}

TEST(MetricsServer, EndsWhileConnectionsAreOpen) {
  Metrics metrics;
  auto server = MetricsServer::Start("127.0.0.1:0", metrics);
  std::vector<int> clients;
  for (size_t i = 0; i < MetricsServer::kMaxConnections + 2; ++i) clients.push_back(Connect((*server)->port()));
  server->reset();
  for (const int fd : clients) {
    EXPECT_EQ(ReadAll(fd), "");
    close(fd);
  }
}

TEST(MetricsServer, AddedFamiliesMayBeMadeFromThoseAbove) {
  Metrics metrics;
  metrics.AddGauge("foretoken_test_level", "Level.").Set(7);
  const auto server = MetricsServer::Start("127.0.0.1:0", metrics);
  (*server)->Add([](const MetricsServer::Families& above) {
    MetricsServer::Families copy = above;
    copy.at(0).name = "other_level";
    return copy;
  });
  EXPECT_THAT(HttpGet((*server)->port(), "/metrics"), HasSubstr("other_level 7"));
}

TEST(TracedHistogram, KeepsTheNewestTracedValueOfEachBucket) {
  Metrics metrics;
  TracedHistogram& wait = metrics.AddTracedHistogram("wait_seconds", "Wait.", {0.1, 1});
  wait.Observe(0.1, "first");  // a bound belongs to the bucket below it
  wait.Observe(0.05, "second");
  wait.Observe(0.07);
  wait.Observe(5, "slow");
  const auto exemplars = metrics.Exemplars().at("wait_seconds");
  ASSERT_EQ(exemplars.size(), 3u);
  EXPECT_EQ(exemplars[0]->trace_id, "second");
  EXPECT_EQ(exemplars[0]->value, 0.05);
  EXPECT_EQ(exemplars[1], std::nullopt);
  EXPECT_EQ(exemplars[2]->trace_id, "slow");
  EXPECT_EQ(metrics.Collect().at(0).metric.at(0).histogram.bucket.at(0).cumulative_count, 3u);
}

std::vector<std::string> Samples(absl::string_view page) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(page, '\n', absl::SkipEmpty())) {
    if (!absl::StartsWith(line, "#")) lines.emplace_back(line.substr(0, line.find(" # ")));
  }
  return lines;
}

// The bounds of buckets are the one difference: OpenMetrics writes 1.0 where the text format writes 1.
TEST(OpenMetricsPage, HasTheSamplesOfTheTextFormat) {
  Metrics metrics;
  metrics.AddCounter("a_total", "A.", {{"kind", "quote \" slash \\ line \n"}}).Increment(1e15 + 0.5);
  metrics.AddGauge("b", "B.").Set(-std::numeric_limits<double>::infinity());
  metrics.AddGauge("c", "C.").Set(0.1);
  TracedHistogram& d = metrics.AddTracedHistogram("d_seconds", "D.", {0.0005, 0.0075, 1, 200000});
  d.Observe(0.1);
  d.Observe(3, "4bf92f3577b34da6a3ce929d0e0e4736");
  const std::string page =
      absl::StrReplaceAll(OpenMetricsPage(metrics.Collect(), metrics.Exemplars()), {{".0\"}", "\"}"}});
  EXPECT_THAT(Samples(page),
              UnorderedElementsAreArray(Samples(prometheus::TextSerializer().Serialize(metrics.Collect()))));
}

TEST(OpenMetricsPage, ATracedBucketEndsWithItsExemplar) {
  Metrics metrics;
  metrics.AddTracedHistogram("d_seconds", "D.", {1, 5}).Observe(3, "4bf92f3577b34da6a3ce929d0e0e4736");
  const std::string page = OpenMetricsPage(metrics.Collect(), metrics.Exemplars());
  EXPECT_THAT(page, HasSubstr("d_seconds_bucket{le=\"1.0\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("d_seconds_bucket{le=\"5.0\"} 1 # {trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\"} 3 1"));
  EXPECT_THAT(page, HasSubstr("d_seconds_bucket{le=\"+Inf\"} 1\n"));
}

TEST(OpenMetricsPage, BoundsOfBucketsAreFloats) {
  Metrics metrics;
  metrics.AddHistogram("d_seconds", "D.", {0.0005, 1, 200000, 1e16});
  const std::string page = OpenMetricsPage(metrics.Collect(), {});
  for (const char* bound : {"0.0005", "1.0", "200000.0", "1e+16", "+Inf"}) {
    EXPECT_THAT(page, HasSubstr(absl::StrCat("d_seconds_bucket{le=\"", bound, "\"} 0\n")));
  }
}

TEST(OpenMetricsPage, AHelpTextStaysInItsLine) {
  Metrics metrics;
  metrics.AddGauge("b", "one\ntwo \"three\"");
  EXPECT_THAT(OpenMetricsPage(metrics.Collect(), {}), StartsWith("# HELP b one\\ntwo \\\"three\\\"\n# TYPE b gauge\n"));
}

}  // namespace
}  // namespace foretoken::telemetry
