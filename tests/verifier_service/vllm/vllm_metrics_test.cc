// SPDX-License-Identifier: Apache-2.0
// Metrics under vLLM's names. If this test fails, a dashboard or a scheduler that was made for vLLM shows wrong numbers
// for this server, or none.
#include "verifier_service/vllm/vllm_metrics.h"

#include <algorithm>
#include <fstream>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/telemetry/open_metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/metric_type.h"
#include "tests/testing/paths.h"
#include "tests/verifier_service/api/metered_engine.h"
#include "verifier_service/api/call_metrics.h"

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

// Returns the value of the series in which the label has this value.
double ValueAt(const MetricFamily& family, const std::string& label, const std::string& value) {
  for (const ClientMetric& metric : family.metric) {
    if (LabelOf(metric, label) != value) continue;
    return family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value;
  }
  ADD_FAILURE() << family.name << " has no " << label << "=" << value;
  return 0;
}

// A line of tests/cases/vllm_boards.txt.
struct BoardSeries {
  std::string type, name, label;
  std::vector<std::string> values;
};

std::vector<BoardSeries> SeriesOfBoards() {
  std::ifstream file(testing::SourcePath("tests/cases/vllm_boards.txt"));
  std::vector<BoardSeries> series;
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "#")) continue;
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    BoardSeries& read = series.emplace_back(BoardSeries{.type = words.at(0), .name = words.at(1)});
    if (words.size() > 2) read.label = words[2];
    for (size_t i = 3; i < words.size(); ++i) read.values.push_back(words[i]);
  }
  return series;
}

std::string TypeName(MetricType type) {
  if (type == MetricType::Histogram) return "histogram";
  return type == MetricType::Counter ? "counter" : "gauge";
}

// Returns the values that a label of this metric has on an OpenMetrics page.
std::vector<std::string> ValuesOn(const std::string& page, const std::string& name, const std::string& label) {
  std::vector<std::string> values;
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    if (!absl::StartsWith(line, name)) continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::StrCat(label, "=\""));
    if (parts.size() == 2) values.emplace_back(parts[1].substr(0, parts[1].find('"')));
  }
  return values;
}

TEST(VllmMetrics, HaveEverySeriesThatVllmsBoardsQuery) {
  telemetry::Metrics registry;
  const CallMetrics calls(registry);
  std::vector<MetricFamily> own = registry.Collect();
  for (MetricFamily& family : MetricsAfterOneRequest()) own.push_back(std::move(family));
  const std::vector<MetricFamily> families = ToVllm(own, "m", {});
  const std::string page = telemetry::OpenMetricsPage(families, {});
  const std::vector<BoardSeries> boards = SeriesOfBoards();
  EXPECT_GT(boards.size(), 30);
  for (const BoardSeries& series : boards) {
    const auto found = std::ranges::find(families, series.name, &MetricFamily::name);
    ASSERT_NE(found, families.end()) << series.name;
    EXPECT_EQ(TypeName(found->type), series.type) << series.name;
    EXPECT_FALSE(found->metric.empty()) << series.name;
    const std::vector<std::string> values = ValuesOn(page, series.name, series.label);
    for (const std::string& value : series.values) EXPECT_THAT(values, Contains(value)) << series.name;
  }
}

TEST(VllmMetrics, PromptTokensAreCountedBySource) {
  const auto families = ToVllm({Value(MetricType::Counter, "foretoken_prompt_tokens_total", 70),
                                Value(MetricType::Counter, "foretoken_cached_tokens_total", 30)},
                               "m", {});
  const MetricFamily& sources = Named(families, "vllm:prompt_tokens_by_source_total");
  EXPECT_EQ(ValueAt(sources, "source", "local_compute"), 70);
  EXPECT_EQ(ValueAt(sources, "source", "local_cache_hit"), 30);
  EXPECT_EQ(ValueAt(sources, "source", "external_kv_transfer"), 0);
  EXPECT_EQ(Named(families, "vllm:prompt_tokens_cached_total").metric[0].counter.value, 30);
}

TEST(VllmMetrics, SamplesWaitForCapacity) {
  const auto families = ToVllm({Value(MetricType::Gauge, "foretoken_samples_queued", 4)}, "m", {});
  const MetricFamily& waiting = Named(families, "vllm:num_requests_waiting_by_reason");
  EXPECT_EQ(ValueAt(waiting, "reason", "capacity"), 4);
  EXPECT_EQ(ValueAt(waiting, "reason", "deferred"), 0);
}

TEST(VllmMetrics, RejectionsAreRefusalsOfGenerateForWantOfRoom) {
  MetricFamily refusals;
  refusals.name = "foretoken_refusals_total";
  refusals.type = MetricType::Counter;
  const auto add = [&refusals](const char* rpc, const char* reason, double count, const char* api = nullptr) {
    ClientMetric& metric = refusals.metric.emplace_back();
    metric.counter.value = count;
    metric.label = {{.name = "rpc", .value = rpc}, {.name = "reason", .value = reason}};
    if (api != nullptr) metric.label.push_back({.name = "api", .value = api});
  };
  add("Generate", "queue_full", 3);
  add("Generate", "queue_full", 2, "vllm");
  add("Generate", "invalid_field", 7);
  add("Tokenize", "queue_full", 11);
  const auto families = ToVllm({refusals}, "m", {});
  const MetricFamily& rejections = Named(families, "vllm:admission_rejections_total");
  EXPECT_EQ(ValueAt(rejections, "reason", "queue_full"), 5);
  EXPECT_EQ(ValueAt(rejections, "reason", "deadline_too_short"), 0);
  for (const ClientMetric& metric : rejections.metric) EXPECT_NE(LabelOf(metric, "reason"), "invalid_field");
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

// Gives the engine a request whose prediction is right. Most steps accept as many guesses as the request allows.
void SubmitPredicted(MeteredEngine& metered, const std::vector<int32_t>& truth, int32_t max_tree_nodes) {
  GenerationRequest request{.prompt = {1, 2, 3}};
  request.stop = {.max_tokens = static_cast<int32_t>(truth.size()), .ignore_eos = true};
  request.speculation.prediction = Prediction(truth, request.stop.max_tokens);
  request.speculation.mode = SpeculationMode::kAlways;
  request.speculation.max_tree_nodes = max_tree_nodes;
  metered.Submit(request);
}

double NumAccepted(const MetricFamily& positions) {
  double sum = 0;
  for (const ClientMetric& metric : positions.metric) sum += metric.counter.value;
  return sum;
}

TEST(VllmMetrics, AStepWithKAcceptedGuessesCountsAtThePositionsBelowK) {
  MeteredEngine metered;
  GenerationRequest plain{.prompt = {1, 2, 3}};
  plain.stop = {.max_tokens = 60, .ignore_eos = true};
  plain.speculation.mode = SpeculationMode::kOff;
  metered.Submit(plain);
  while (metered.engine.Step()) continue;
  const std::vector<int32_t> truth = metered.output;
  for (const int32_t length : {5, 6, 9, 11, 16}) {
    SubmitPredicted(metered, truth, length);
    while (metered.engine.Step()) continue;
    const std::vector<uint64_t> lengths = metered.engine.GetStats().speculation.accepted_lengths;
    ASSERT_EQ(lengths.size(), length + 1);
    const auto families = ToVllm(metered.Families(), "m", {});
    const MetricFamily& positions = Named(families, "vllm:spec_decode_num_accepted_tokens_per_pos_total");
    for (size_t position = 0; position < 16; ++position) {
      double expected = 0;
      for (size_t k = position + 1; k < lengths.size(); ++k) expected += static_cast<double>(lengths[k]);
      EXPECT_EQ(ValueAt(positions, "position", absl::StrCat(position)), expected) << position;
    }
    EXPECT_EQ(NumAccepted(positions),
              Named(families, "vllm:spec_decode_num_accepted_tokens_total").metric[0].counter.value);
  }
}

TEST(VllmMetrics, ARunningSampleCountsAtThePositions) {
  MeteredEngine metered;
  SubmitPredicted(metered, {4090, 4090, 4090, 4090}, 3);
  while (metered.engine.Step()) continue;
  const std::vector<int32_t> truth = metered.output;
  SubmitPredicted(metered, truth, 1);
  for (int step = 0; step < 2; ++step) metered.engine.Step();
  ASSERT_EQ(metered.engine.GetStats().num_running, 1);
  const auto families = ToVllm(metered.Families(), "m", {});
  EXPECT_EQ(ValueAt(Named(families, "vllm:spec_decode_num_accepted_tokens_per_pos_total"), "position", "0"), 1);
  EXPECT_EQ(Named(families, "vllm:spec_decode_num_accepted_tokens_total").metric[0].counter.value, 1);
}

TEST(VllmMetrics, ATreeIsAStepOfASampleWithAtLeastOneNode) {
  const auto families = ToVllm({Lengths("foretoken_sequence_tree_nodes", {{0, 4}, {1, 6}, {2, 9}})}, "m", {});
  EXPECT_EQ(Named(families, "vllm:spec_decode_num_drafts_total").metric[0].counter.value, 5);
}

TEST(VllmMetrics, FinishedSamplesHaveVllmsLabelAndReasons) {
  MetricFamily finished;
  finished.name = "foretoken_samples_finished_total";
  finished.type = MetricType::Counter;
  for (const auto& [reason, count] : {std::pair{"stop", 2}, {"abort", 3}, {"shutdown", 4}, {"error", 5}}) {
    ClientMetric& metric = finished.metric.emplace_back();
    metric.label.push_back({.name = "reason", .value = reason});
    metric.counter.value = count;
  }
  const auto families = ToVllm({finished}, "m", {});
  const MetricFamily& success = Named(families, "vllm:request_success_total");
  EXPECT_EQ(ValueAt(success, "finished_reason", "stop"), 2);
  EXPECT_EQ(ValueAt(success, "finished_reason", "abort"), 7) << "vLLM has no name for the end of a server";
  EXPECT_EQ(ValueAt(success, "finished_reason", "error"), 5);
  for (const ClientMetric& metric : success.metric) EXPECT_NE(LabelOf(metric, "finished_reason"), "shutdown");
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
