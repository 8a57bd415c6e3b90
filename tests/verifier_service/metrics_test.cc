// SPDX-License-Identifier: Apache-2.0
// The metrics of the verifier. If this test fails, dashboards show wrong or missing counters, or docs/metrics.md does
// not list a metric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/telemetry/open_metrics.h"
#include "prometheus/registry.h"
#include "tests/testing/paths.h"
#include "tests/verifier_service/api/metered_engine.h"
#include "verifier_service/api/call_metrics.h"
#include "verifier_service/engine_metrics.h"
#include "verifier_service/expert_metrics.h"

namespace foretoken::verifier {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;
using ::testing::Key;
using ::testing::StartsWith;

// Returns the names in backquotes on a page of this repository.
std::set<std::string> NamesOn(const std::string& path) {
  std::ifstream file(testing::SourcePath(path));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::set<std::string> names;
  for (const absl::string_view part : absl::StrSplit(text, '`')) {
    if (absl::StartsWith(part, "foretoken_") && !absl::EndsWith(part, "_")) names.insert(std::string(part));
  }
  return names;
}

class EngineMetrics : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    families_ = MetricsAfterOneRequest();
    for (const prometheus::MetricFamily& family : families_) {
      for (const prometheus::ClientMetric& metric : family.metric) {
        std::string name = family.name;
        for (const auto& label : metric.label) absl::StrAppend(&name, ",", label.name, "=", label.value);
        values_[name] = metric.counter.value + metric.gauge.value + metric.histogram.sample_sum;
      }
    }
  }
  static void TearDownTestSuite() {
    families_.clear();
    values_.clear();
  }

  // Returns the value of this name and labels, which must exist.
  static double ValueOf(const std::string& name) {
    EXPECT_THAT(values_, Contains(Key(name)));
    return values_[name];
  }
  // Returns the histogram of this name, which must have no labels.
  static prometheus::ClientMetric::Histogram Histogram(const std::string& name) {
    const auto family = std::ranges::find(families_, name, &prometheus::MetricFamily::name);
    if (family == families_.end() || family->type != prometheus::MetricType::Histogram || family->metric.size() != 1) {
      ADD_FAILURE() << name << " is not one histogram";
      return {};
    }
    return family->metric[0].histogram;
  }

  using Value = std::pair<const std::string, double>;
  static inline std::vector<prometheus::MetricFamily> families_;
  static inline std::map<std::string, double> values_;  // by NAME,LABEL=VALUE; of a histogram the sum of its samples
};

TEST_F(EngineMetrics, HasEveryMetricOnceWithAHelpText) {
  std::set<std::string> names;
  for (const prometheus::MetricFamily& family : families_) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name << " twice";
    EXPECT_FALSE(family.help.empty()) << family.name;
  }
}

TEST_F(EngineMetrics, HasMetricsThatAreOnThePageOfMetrics) {
  const std::set<std::string> documented = NamesOn("docs/metrics.md");
  for (const prometheus::MetricFamily& family : families_) EXPECT_THAT(documented, Contains(family.name));
}

TEST(ExpertMetrics, CountLoadsAndBytesAndAreOnThePageOfMetrics) {
  const auto families = CollectExpertMetrics({.num_loads = 7, .num_bytes = 4096});
  ASSERT_EQ(families.size(), 2);
  const std::set<std::string> documented = NamesOn("docs/metrics.md");
  for (const prometheus::MetricFamily& family : families) {
    EXPECT_THAT(documented, Contains(family.name));
    EXPECT_FALSE(family.help.empty());
  }
  EXPECT_EQ(families[0].name, "foretoken_expert_loads_total");
  EXPECT_EQ(families[0].metric.at(0).counter.value, 7);
  EXPECT_EQ(families[1].metric.at(0).gauge.value, 4096);
}

TEST_F(EngineMetrics, EndsTheNamesOfCountersAndOfNothingElseWithTotal) {
  for (const prometheus::MetricFamily& family : families_) {
    EXPECT_THAT(family.name, StartsWith("foretoken_"));
    EXPECT_EQ(absl::EndsWith(family.name, "_total"), family.type == prometheus::MetricType::Counter) << family.name;
  }
}

TEST_F(EngineMetrics, CountsTheTokensStepsAndSamplesOfTheEngine) {
  EXPECT_THAT(values_, IsSupersetOf({Value("foretoken_generated_tokens_total", 5), Value("foretoken_steps_total", 5),
                                     Value("foretoken_prompt_tokens_total", 3), Value("foretoken_samples_running", 0),
                                     Value("foretoken_samples_queued", 0), Value("foretoken_samples_preempted", 0),
                                     Value("foretoken_kv_blocks", 64)}));
}

TEST_F(EngineMetrics, HasAZeroForWhatAProposerWithoutAConnectionHasNotDone) {
  EXPECT_THAT(values_, IsSupersetOf({Value("foretoken_proposed_tokens_total,proposer=ngram", 0),
                                     Value("foretoken_proposer_replicas_connected,proposer=ngram", 0),
                                     Value("foretoken_proposer_waiting_sessions,proposer=ngram", 0),
                                     Value("foretoken_proposer_bad_trees_total,proposer=ngram", 0),
                                     Value("foretoken_proposer_refusals_total,proposer=ngram,reason=stream_full", 0),
                                     Value("foretoken_unknown_sessions_total,proposer=ngram", 0),
                                     Value("foretoken_proposer_round_trip_seconds,proposer=ngram", 0),
                                     Value("foretoken_proposer_trials_total", 0),
                                     Value("foretoken_proposer_chance_trials_total,proposer=ngram,depth=3-4", 0),
                                     Value("foretoken_proposer_chance_hits_total,proposer=ngram,depth=9+", 0)}));
}

TEST_F(EngineMetrics, SaysWhichProposersAreAsked) {
  EXPECT_THAT(values_, Contains(Value("foretoken_proposer_asked,proposer=ngram", 1)));
  for (const char* own : {"prediction", "grammar"}) {
    EXPECT_THAT(values_, ::testing::Not(Contains(Key(absl::StrCat("foretoken_proposer_asked,proposer=", own)))));
  }
}

TEST_F(EngineMetrics, CountsCallsAndBytesThatClientsHaveNotRead) {
  EXPECT_THAT(values_, IsSupersetOf({Value("foretoken_unread_calls", 2), Value("foretoken_unread_bytes", 42)}));
}

TEST_F(EngineMetrics, CountsAWrongPredictionAsRejected) {
  EXPECT_THAT(values_,
              IsSupersetOf({Value("foretoken_rejected_prediction_tokens_total", 3),
                            Value("foretoken_accepted_tokens_total,proposer=prediction", 0),
                            Value("foretoken_tree_nodes_accepted_total", 0), Value("foretoken_accepted_length", 0)}));
}

TEST_F(EngineMetrics, CountsTheNodesOfAPredictionInEveryMetricOfNodes) {
  const double num_nodes = ValueOf("foretoken_proposed_tokens_total,proposer=prediction");
  EXPECT_GT(num_nodes, 0);
  EXPECT_EQ(ValueOf("foretoken_tree_nodes_planned_total"), num_nodes);
  EXPECT_EQ(ValueOf("foretoken_sequence_tree_nodes"), num_nodes);
  EXPECT_EQ(ValueOf("foretoken_step_rows"), 7 + num_nodes);
  EXPECT_GE(ValueOf("foretoken_tree_nodes_offered_total"), num_nodes);
  EXPECT_GT(ValueOf("foretoken_tree_steps_total"), 0);
  EXPECT_GT(ValueOf("foretoken_expected_tokens_total"), 5);
  EXPECT_GT(ValueOf("foretoken_decode_step_seconds_total"), 0);
  EXPECT_GT(ValueOf("foretoken_plain_decode_seconds_total"), 0);
}

TEST_F(EngineMetrics, ShowsTheTimesOfStepsAndTheLearnedCostOfRows) {
  EXPECT_GT(ValueOf("foretoken_step_seconds_total,part=forward"), 0);
  EXPECT_GT(ValueOf("foretoken_step_cost_seconds,rows=512"), 0);
  EXPECT_LT(ValueOf("foretoken_step_cost_seconds,rows=1"), 1);  // the demo's draft takes milliseconds
}

TEST_F(EngineMetrics, HasEveryStepInItsHistograms) {
  const prometheus::ClientMetric::Histogram rows = Histogram("foretoken_step_rows");
  EXPECT_EQ(rows.sample_count, 5);
  ASSERT_GT(rows.bucket.size(), 1);
  EXPECT_EQ(rows.bucket[1].upper_bound, 1);
  EXPECT_EQ(rows.bucket.back().cumulative_count, 5);
  EXPECT_TRUE(std::isinf(rows.bucket.back().upper_bound));
  const prometheus::ClientMetric::Histogram lengths = Histogram("foretoken_accepted_length");
  EXPECT_EQ(lengths.sample_count, 5);
  ASSERT_FALSE(lengths.bucket.empty());
  EXPECT_EQ(lengths.bucket.back().cumulative_count, 5);
}

// A rate() does not see the first refusals of a series that appears with them.
TEST(CallMetrics, ShowTheRefusalsOfGenerateBeforeTheFirstOne) {
  telemetry::Metrics registry;
  CallMetrics metrics(registry);
  metrics.Announce({.rpc = "Generate", .api = "vllm"});
  std::vector<std::string> samples;
  const std::string page = telemetry::OpenMetricsPage(registry.Collect(), {});
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    if (absl::StrContains(line, "rpc=\"Generate\"")) samples.emplace_back(line);
  }
  EXPECT_THAT(samples,
              IsSupersetOf({"foretoken_refusals_total{reason=\"queue_full\",rpc=\"Generate\"} 0",
                            "foretoken_refusals_total{api=\"vllm\",reason=\"device_failed\",rpc=\"Generate\"} 0",
                            "foretoken_refusals_total{reason=\"numerics_differ\",rpc=\"Generate\"} 0",
                            "foretoken_refusals_total{reason=\"deadline_exceeded\",rpc=\"Generate\"} 0",
                            "foretoken_rpc_calls_total{code=\"RESOURCE_EXHAUSTED\",rpc=\"Generate\"} 0",
                            "foretoken_rpc_calls_total{code=\"INTERNAL\",rpc=\"Generate\"} 0",
                            "foretoken_rpc_calls_total{code=\"UNAVAILABLE\",rpc=\"Generate\"} 0"}));
}

TEST(CallMetrics, AreOnThePageOfMetrics) {
  telemetry::Metrics registry;
  const CallMetrics metrics(registry);
  const std::set<std::string> documented = NamesOn("docs/metrics.md");
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    EXPECT_TRUE(documented.contains(family.name)) << family.name;
  }
}

}  // namespace
}  // namespace foretoken::verifier
