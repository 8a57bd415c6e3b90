// SPDX-License-Identifier: Apache-2.0
// The tests' own reader of metrics pages. If this test fails, other tests of metrics may pass although a page is wrong.
#include "tests/testing/metrics_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/telemetry/metrics_server.h"

namespace foretoken::testing {
namespace {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(ParseMetrics, ReadsNamesWithTheirLabelsAndLeavesCommentsOut) {
  EXPECT_THAT(
      ParseMetrics("# HELP a_total Text 5\n# TYPE a_total counter\na_total 3\n"
                   "b{phase=\"draw one\"} 0.25\r\nc{le=\"+Inf\"} 1e3\nbroken\nno number\n"),
      UnorderedElementsAre(Pair("a_total", 3), Pair("b{phase=\"draw one\"}", 0.25), Pair("c{le=\"+Inf\"}", 1000)));
}

TEST(ReadMetrics, ReadsThePageOfAServer) {
  telemetry::Metrics metrics;
  metrics.AddCounter("apples_total", "Apples.", {{"kind", "red"}}).Increment(7);
  const auto server = telemetry::MetricsServer::Start("127.0.0.1:0", metrics).value();
  EXPECT_EQ(ReadMetrics(server->port()).value().at("apples_total{kind=\"red\"}"), 7);
}

TEST(ReadMetrics, NamesAPortWithoutAServer) { EXPECT_EQ(ReadMetrics(1).status().message(), "no metrics on port 1"); }

TEST(SumOf, AddsAllLabelsOfTheNameAlone) {
  EXPECT_EQ(SumOf({{"a", 1}, {"a{b=\"1\"}", 2}, {"ab", 4}, {"ab{c=\"1\"}", 8}}, "a"), 3);
}

}  // namespace
}  // namespace foretoken::testing
