// SPDX-License-Identifier: Apache-2.0
// The families that a verifier shows of an engine that has served one request.
#pragma once

#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/paths.h"
#include "verifier_service/api/service_metrics.h"

namespace foretoken::verifier {

// Returns the metrics of an engine that has finished one request of five tokens. The request's prediction of three
// tokens was wrong. No process listens at the address of the engine's proposer, so the proposer is never connected. Two
// calls have outputs that their clients have not read.
inline std::vector<prometheus::MetricFamily> MetricsAfterOneRequest() {
  testing::LoadedModel model = testing::LoadModel(testing::SourcePath("deploy/demo/draft"));
  const auto tokenizer = tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/draft")).value();
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
  EXPECT_EQ(engine.Submit(engine.Reserve().value(), request), absl::OkStatus());
  while (engine.Step()) continue;
  UnreadOutputs unread(1000);
  unread.Set(7, 30);
  unread.Set(8, 12);
  return CollectEngineMetrics(engine, *pool, unread);
}

}  // namespace foretoken::verifier
