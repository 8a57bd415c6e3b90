// SPDX-License-Identifier: Apache-2.0
// An engine that a bench runs step by step, over a loaded model and without proposers.
//
//   DrivenEngine driven(*loaded.transformer, num_threads, {.max_step_rows = 512});
//   driven.on_outputs = [&](const std::vector<SampleOutput>& outputs) { ... };
//   driven.Submit(Ask(1, RandomPrompt(/*seed=*/1, 64), /*max_tokens=*/16));
//   while (driven.engine.Step()) continue;
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/offline/oracle_proposer.h"
#include "common/model/transformer.h"
#include "kernels/check.h"
#include "tests/bench/stopwatch.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/paths.h"
#include "verifier_service/engine/engine.h"

namespace foretoken::bench {

inline std::vector<int32_t> RandomPrompt(uint32_t seed, int32_t num_tokens) {
  testing::RandomValues random(seed);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < num_tokens; ++i) prompt.push_back(random.Below(4000));
  return prompt;
}

inline verifier::GenerationRequest Ask(uint64_t ticket, std::vector<int32_t> prompt, int32_t max_tokens) {
  verifier::GenerationRequest request{
      .ticket = ticket, .request_id = absl::StrCat(ticket), .prompt = std::move(prompt)};
  request.sampling.seed = ticket;
  request.stop = {.max_tokens = max_tokens, .ignore_eos = true};
  return request;
}

struct DrivenEngine {
  static constexpr int32_t kNumBlocks = 1024;

  // The draw is over the demo tokenizer's vocabulary.
  DrivenEngine(model::Transformer& transformer, int num_threads, const verifier::EngineConfig& config)
      : kv(transformer.MakeKvCache(kNumBlocks)),
        tokenizer(tokenizer::Tokenizer::Load(testing::SourcePath("deploy/demo/target")).value()),
        engine(config, {.transformer = &transformer,
                        .kv = &kv,
                        .tokenizer = &tokenizer,
                        .proposers = &silent,
                        .publish = [this](const std::vector<verifier::SampleOutput>& outputs) { on_outputs(outputs); },
                        .now = [num_threads] { return absl::UnixEpoch() + absl::Seconds(Now(num_threads)); }}) {}

  void Submit(verifier::GenerationRequest request) {
    FT_CHECK(engine.Submit(engine.Reserve().value(), std::move(request)).ok());
  }

  model::KvCache kv;
  tokenizer::Tokenizer tokenizer;
  client::OracleProposer silent{/*num_nodes=*/0};
  std::function<void(const std::vector<verifier::SampleOutput>&)> on_outputs = [](const auto&) {};
  verifier::Engine engine;
};

}  // namespace foretoken::bench
