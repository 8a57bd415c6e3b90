// SPDX-License-Identifier: Apache-2.0
// Metrics under vLLM's names. If this test fails, a dashboard or a scheduler that was made for vLLM shows wrong numbers
// for this server, or none.
#include "verifier_service/vllm/vllm_metrics.h"

#include <algorithm>
#include <limits>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/metric_type.h"

namespace foretoken::verifier {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using ::testing::Contains;

MetricFamily Value(MetricType type, const std::string& name, double value) {
  MetricFamily family;
  family.name = name;
  family.type = type;
  ClientMetric& metric = family.metric.emplace_back();
  (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return family;
}

MetricFamily Lengths(const std::string& name, std::vector<std::pair<double, uint64_t>> cumulative) {
  MetricFamily family;
  family.name = name;
  family.type = MetricType::Histogram;
  ClientMetric::Histogram& histogram = family.metric.emplace_back().histogram;
  for (const auto& [bound, count] : cumulative) {
    histogram.bucket.push_back({.cumulative_count = count, .upper_bound = bound});
    histogram.sample_count = count;
  }
  return family;
}

const MetricFamily& Named(const std::vector<MetricFamily>& families, const std::string& name) {
  const auto found = std::ranges::find(families, name, &MetricFamily::name);
  EXPECT_NE(found, families.end()) << name;
  return *found;
}

std::string LabelOf(const ClientMetric& metric, const std::string& name) {
  for (const ClientMetric::Label& label : metric.label) {
    if (label.name == name) return label.value;
  }
  return "";
}

TEST(VllmMetrics, ARenamedMetricKeepsItsValueAndHasVllmsLabels) {
  const auto families = ToVllm({Value(MetricType::Gauge, "foretoken_samples_running", 3)}, "llama", {});
  const MetricFamily& running = Named(families, "vllm:num_requests_running");
  EXPECT_EQ(running.metric.at(0).gauge.value, 3);
  EXPECT_EQ(LabelOf(running.metric[0], "model_name"), "llama");
  EXPECT_EQ(LabelOf(running.metric[0], "engine"), "0");
}

TEST(VllmMetrics, ThePrefixCachesQueriesAreAllPromptTokens) {
  const auto families = ToVllm({Value(MetricType::Counter, "foretoken_prompt_tokens_total", 70),
                                Value(MetricType::Counter, "foretoken_cached_tokens_total", 30)},
                               "m", {});
  EXPECT_EQ(Named(families, "vllm:prefix_cache_queries_total").metric[0].counter.value, 100);
  EXPECT_EQ(Named(families, "vllm:prefix_cache_hits_total").metric[0].counter.value, 30);
  EXPECT_EQ(Named(families, "vllm:prompt_tokens_total").metric[0].counter.value, 100);
}

TEST(VllmMetrics, BlocksThatOnlyTheCacheKeepsAreUnused) {
  const auto families = ToVllm(
      {Value(MetricType::Gauge, "foretoken_kv_blocks", 100), Value(MetricType::Gauge, "foretoken_kv_blocks_free", 50),
       Value(MetricType::Gauge, "foretoken_kv_blocks_cached", 30)},
      "m", {});
  EXPECT_NEAR(Named(families, "vllm:kv_cache_usage_perc").metric[0].gauge.value, 0.2, 1e-9);
}

TEST(VllmMetrics, AStepWithKAcceptedGuessesCountsAtThePositionsBelowK) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // 5 steps accepted nothing, 3 one guess, 2 two, 1 five or six, 1 more than eight.
  const auto families =
      ToVllm({Lengths("foretoken_accepted_length",
                      {{0, 5}, {1, 8}, {2, 10}, {3, 10}, {4, 10}, {6, 11}, {8, 11}, {kInfinity, 12}})},
             "m", {});
  const MetricFamily& positions = Named(families, "vllm:spec_decode_num_accepted_tokens_per_pos_total");
  std::vector<double> counts;
  for (const ClientMetric& metric : positions.metric) counts.push_back(metric.counter.value);
  counts.resize(8);
  EXPECT_EQ(counts, (std::vector<double>{7, 4, 2, 2, 2, 1, 1, 1}));
  EXPECT_EQ(LabelOf(positions.metric[3], "position"), "3");
}

TEST(VllmMetrics, ATreeIsAStepOfASampleWithAtLeastOneNode) {
  const auto families = ToVllm({Lengths("foretoken_sequence_tree_nodes", {{0, 4}, {1, 6}, {2, 9}})}, "m", {});
  EXPECT_EQ(Named(families, "vllm:spec_decode_num_drafts_total").metric[0].counter.value, 5);
}

TEST(VllmMetrics, FinishedSamplesHaveVllmsLabel) {
  MetricFamily finished = Value(MetricType::Counter, "foretoken_samples_finished_total", 2);
  finished.metric[0].label.push_back({.name = "reason", .value = "stop"});
  const auto families = ToVllm({finished}, "m", {});
  EXPECT_EQ(LabelOf(Named(families, "vllm:request_success_total").metric[0], "finished_reason"), "stop");
}

TEST(VllmMetrics, TheCachesSizeIsInLabels) {
  const auto families = ToVllm({}, "m", {.num_blocks = 64, .block_size = 16, .has_prefix_cache = true});
  const ClientMetric& info = Named(families, "vllm:cache_config_info").metric[0];
  EXPECT_EQ(info.gauge.value, 1);
  EXPECT_EQ(LabelOf(info, "num_gpu_blocks"), "64");
  EXPECT_EQ(LabelOf(info, "block_size"), "16");
  EXPECT_EQ(LabelOf(info, "enable_prefix_caching"), "True");
}

TEST(VllmMetrics, OnlyCountersAndOneHistogramEndWithTotal) {
  const auto families = ToVllm({Lengths("foretoken_step_rows", {{1, 1}})}, "m", {});
  for (const MetricFamily& family : families) {
    const bool is_total = family.type == MetricType::Counter || family.name == "vllm:iteration_tokens_total";
    EXPECT_EQ(absl::EndsWith(family.name, "_total"), is_total) << family.name;
  }
}

}  // namespace
}  // namespace foretoken::verifier
