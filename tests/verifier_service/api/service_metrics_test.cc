// SPDX-License-Identifier: Apache-2.0
// The metrics of the verifier. If this test fails, dashboards show wrong or missing counters, or docs/metrics.md does
// not list a metric.
#include "verifier_service/api/service_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "prometheus/registry.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/paths.h"

namespace foretoken::verifier {
namespace {

using ::testing::IsSupersetOf;
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

TEST(EngineCollector, HasTheCountersOfTheEngineAndThePool) {
  testing::LoadedModel model = testing::LoadModel(testing::SourcePath("deploy/demo/draft"));
  const auto tokenizer = tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/draft")).value();
  // No process listens at this address, so the proposer exists and is never connected.
  const auto pool =
      ProposerPool::Create({ParseProposerSpec("ngram=static:127.0.0.1:1").value()}, {.num_tokens = 4096}).value();
  Engine engine({}, {.transformer = model.transformer.get(),
                     .kv = &model.kv,
                     .tokenizer = &tokenizer,
                     .proposers = pool.get(),
                     .publish = [](std::vector<SampleOutput>) {}});
  GenerationRequest request{.ticket = 1, .request_id = "r", .prompt = {1, 2, 3}};
  request.stop = {.max_tokens = 5, .ignore_eos = true};
  request.speculation.prediction = Prediction({4090, 4090, 4090}, 64);
  ASSERT_TRUE(engine.Submit(engine.Reserve().value(), request).ok());
  while (engine.Step()) continue;
  UnreadOutputs unread(1000);
  unread.Set(7, 30);
  unread.Set(8, 12);

  const std::set<std::string> documented = NamesOn("docs/metrics.md");
  std::map<std::string, double> values;
  std::map<std::string, prometheus::MetricFamily> families;
  for (const prometheus::MetricFamily& family : EngineCollector(engine, *pool, unread).Collect()) {
    EXPECT_TRUE(families.emplace(family.name, family).second) << family.name << " twice";
    EXPECT_FALSE(family.help.empty()) << family.name;
    EXPECT_TRUE(documented.contains(family.name)) << family.name << " is not in docs/metrics.md";
    EXPECT_THAT(family.name, StartsWith("foretoken_"));
    EXPECT_EQ(absl::EndsWith(family.name, "_total"), family.type == prometheus::MetricType::Counter) << family.name;
    for (const prometheus::ClientMetric& metric : family.metric) {
      std::string name = family.name;
      for (const auto& label : metric.label) absl::StrAppend(&name, ",", label.name, "=", label.value);
      values[name] = metric.counter.value + metric.gauge.value + metric.histogram.sample_sum;
      if (family.name == "foretoken_accepted_length") {
        EXPECT_EQ(metric.histogram.sample_count, 5);
        EXPECT_EQ(metric.histogram.bucket.back().cumulative_count, metric.histogram.sample_count);
      }
    }
  }
  using Value = std::pair<const std::string, double>;
  EXPECT_THAT(values, IsSupersetOf({Value("foretoken_generated_tokens_total", 5), Value("foretoken_steps_total", 5),
                                    Value("foretoken_prompt_tokens_total", 3), Value("foretoken_samples_running", 0),
                                    Value("foretoken_kv_blocks", 64), Value("foretoken_accepted_length", 0),
                                    Value("foretoken_rejected_prediction_tokens_total", 3),
                                    Value("foretoken_accepted_tokens_total,proposer=prediction", 0),
                                    Value("foretoken_proposed_tokens_total,proposer=ngram", 0),
                                    Value("foretoken_proposer_replicas_connected,proposer=ngram", 0),
                                    Value("foretoken_proposer_bad_trees_total,proposer=ngram", 0),
                                    Value("foretoken_proposer_refusals_total,proposer=ngram,reason=stream_full", 0),
                                    Value("foretoken_unknown_sessions_total,proposer=ngram", 0),
                                    Value("foretoken_proposer_round_trip_seconds,proposer=ngram", 0),
                                    Value("foretoken_samples_queued", 0), Value("foretoken_samples_preempted", 0),
                                    Value("foretoken_unread_calls", 2), Value("foretoken_unread_bytes", 42)}));
  EXPECT_THAT(values, IsSupersetOf({Value("foretoken_tree_nodes_accepted_total", 0),
                                    Value("foretoken_proposer_asked,proposer=ngram", 1),
                                    Value("foretoken_proposer_trials_total", 0),
                                    Value("foretoken_proposer_chance_trials_total,proposer=ngram,depth=3-4", 0),
                                    Value("foretoken_proposer_chance_hits_total,proposer=ngram,depth=9+", 0)}));
  // The prediction's nodes, which are all wrong.
  const double num_nodes = values["foretoken_proposed_tokens_total,proposer=prediction"];
  EXPECT_GT(num_nodes, 0);
  EXPECT_EQ(values["foretoken_tree_nodes_planned_total"], num_nodes);
  EXPECT_EQ(values["foretoken_sequence_tree_nodes"], num_nodes);
  EXPECT_EQ(values["foretoken_step_rows"], 7 + num_nodes);
  EXPECT_GE(values["foretoken_tree_nodes_offered_total"], num_nodes);
  EXPECT_GT(values["foretoken_tree_steps_total"], 0);
  EXPECT_GT(values["foretoken_expected_tokens_total"], 5);
  EXPECT_GT(values["foretoken_step_seconds_total,part=forward"], 0);
  EXPECT_GT(values["foretoken_step_cost_seconds,rows=512"], 0);
  EXPECT_LT(values["foretoken_step_cost_seconds,rows=1"], 1);  // the demo's draft takes milliseconds
  ASSERT_EQ(families["foretoken_step_rows"].type, prometheus::MetricType::Histogram);
  const prometheus::ClientMetric::Histogram& rows = families["foretoken_step_rows"].metric.at(0).histogram;
  EXPECT_EQ(rows.sample_count, 5);
  EXPECT_EQ(rows.bucket[1].upper_bound, 1);
  EXPECT_EQ(rows.bucket.back().cumulative_count, 5);
  EXPECT_TRUE(std::isinf(rows.bucket.back().upper_bound));
}

TEST(CallMetrics, AreOnThePageOfMetrics) {
  prometheus::Registry registry;
  const CallMetrics metrics(registry);
  const std::set<std::string> documented = NamesOn("docs/metrics.md");
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    EXPECT_TRUE(documented.contains(family.name)) << family.name;
  }
}

}  // namespace
}  // namespace foretoken::verifier
