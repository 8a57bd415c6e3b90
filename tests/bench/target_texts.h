// SPDX-License-Identifier: Apache-2.0
// Texts of the demo's target for replay. A verifier's committed tokens do not depend on the guesses, so a replay is
// real.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/model/runnable_model.h"

namespace foretoken::bench {

struct TargetText {
  std::vector<int32_t> token_ids;  // prompt and output
  size_t num_prompt = 0;
  kernels::SamplingParams sampling;

  std::span<const int32_t> prompt() const { return std::span(token_ids).first(num_prompt); }
};

struct TargetTextsArgs {
  float temperature = 0;
  size_t num_prompts = 32;   // at most; the first of deploy/demo/prompts.jsonl
  int32_t num_tokens = 192;  // per output, at most
};

// A model of deploy/demo, "target" or "draft", ready to run. 0 threads: one per core.
model::RunnableModel LoadDemoModel(const std::string& name, int num_threads);

std::vector<TargetText> MakeTargetTexts(model::RunnableModel& target, const TargetTextsArgs& args);

}  // namespace foretoken::bench
