// SPDX-License-Identifier: Apache-2.0
// An engine with a small model, and the families that a verifier shows of it.
//
//   MeteredEngine metered;
//   metered.Submit({.prompt = {1, 2, 3}, .stop = {.max_tokens = 5, .ignore_eos = true}});
//   while (metered.engine.Step()) continue;
//   metered.Families();
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/models/loaded_model.h"
#include "tests/testing/paths.h"
#include "verifier_service/engine_metrics.h"

namespace foretoken::verifier {

// No process listens at the address of the engine's proposer, so the proposer is never connected. Two calls have
// outputs that their clients have not read.
struct MeteredEngine {
  MeteredEngine() {
    unread.Set(7, 30);
    unread.Set(8, 12);
  }

  void Submit(GenerationRequest request) {
    request.ticket = ++num_requests;
    request.request_id = "r";
    output.clear();
    EXPECT_EQ(engine.Submit(engine.Reserve().value(), std::move(request)), absl::OkStatus());
  }
  std::vector<prometheus::MetricFamily> Families() const { return CollectEngineMetrics(engine, *pool, unread); }

  testing::LoadedModel model = testing::LoadModel(testing::SourcePath("deploy/demo/draft"));
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/draft")).value();
  const std::unique_ptr<ProposerPool> pool =
      ProposerPool::Create({ParseProposerSpec("ngram=static:127.0.0.1:1").value()}, {.num_tokens = 4096}).value();
  std::vector<int32_t> output;  // tokens of the newest request
  Engine engine{{},
                {.transformer = model.transformer.get(),
                 .kv = &model.kv,
                 .tokenizer = &tokenizer,
                 .proposers = pool.get(),
                 .publish = [this](std::vector<SampleOutput> outputs) {
                   for (const SampleOutput& part : outputs) {
                     output.insert(output.end(), part.token_ids.begin(), part.token_ids.end());
                   }
                 }}};
  UnreadOutputs unread{1000};
  Ticket num_requests = 0;
};

// Returns the metrics of an engine that has finished one request of five tokens. The request's prediction of three
// tokens was wrong.
inline std::vector<prometheus::MetricFamily> MetricsAfterOneRequest() {
  MeteredEngine metered;
  GenerationRequest request{.prompt = {1, 2, 3}};
  request.stop = {.max_tokens = 5, .ignore_eos = true};
  request.speculation.prediction = Prediction({4090, 4090, 4090}, 64);
  metered.Submit(request);
  while (metered.engine.Step()) continue;
  return metered.Families();
}

}  // namespace foretoken::verifier
