// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/service_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "tests/testing/loaded_model.h"
#include "tests/testing/paths.h"

namespace foretoken::verifier {
namespace {

using ::testing::AnyOf;
using ::testing::IsSupersetOf;

TEST(EngineCollector, TellsTheEnginesAndThePoolsCounters) {
  testing::LoadedModel model = testing::LoadModel(testing::SourcePath("deploy/demo/draft"));
  const auto tokenizer = tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/draft")).value();
  // Nobody listens there: the proposer exists, and is never connected.
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

  std::map<std::string, double> values;
  for (const prometheus::MetricFamily& family : EngineCollector(engine, *pool).Collect()) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      std::string name = family.name;
      for (const auto& label : metric.label) {
        if (label.name == "phase") {
          name += " " + label.value;
        } else {
          EXPECT_THAT(label.value, AnyOf("ngram", "prediction"));
        }
        if (label.value == "prediction") name += " of predictions";
      }
      values[name] = metric.counter.value + metric.gauge.value + metric.histogram.sample_count;
      if (family.name == "foretoken_accepted_length") {
        EXPECT_EQ(metric.histogram.sample_sum, 5 - static_cast<double>(metric.histogram.sample_count));
        EXPECT_EQ(metric.histogram.bucket.back().cumulative_count, metric.histogram.sample_count);
      }
    }
  }
  using Value = std::pair<const std::string, double>;
  EXPECT_THAT(values, IsSupersetOf({Value("foretoken_generated_tokens_total", 5), Value("foretoken_steps_total", 5),
                                    Value("foretoken_prompt_tokens_total", 3), Value("foretoken_samples_running", 0),
                                    Value("foretoken_kv_blocks", 64), Value("foretoken_accepted_length", 5),
                                    Value("foretoken_rejected_prediction_tokens_total", 3),
                                    Value("foretoken_accepted_tokens_total of predictions", 0),
                                    Value("foretoken_proposed_tokens_total", 0),
                                    Value("foretoken_proposer_replicas_connected", 0),
                                    Value("foretoken_proposer_bad_trees_total", 0)}));
  EXPECT_GT(values["foretoken_step_seconds_total forward"], 0);
  EXPECT_GT(values["foretoken_step_seconds_total draw"], 0);
  EXPECT_GT(values["foretoken_step_seconds_total host"], 0);
  EXPECT_EQ(values.count("foretoken_step_seconds_total wait"), 1);
}

}  // namespace
}  // namespace foretoken::verifier
