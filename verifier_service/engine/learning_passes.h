// SPDX-License-Identifier: Apache-2.0
// Runs forward passes before serving begins, so that the planner knows what rows cost before the first request comes.
#pragma once

#include <cstdint>
#include <functional>

#include "common/base/steady_clock.h"
#include "common/model/transformer.h"
#include "verifier_service/planner/step_cost.h"

namespace foretoken::verifier {

struct LearningPasses {
  int num_passes = 0;
  double seconds = 0;
};

struct LearningArgs {
  model::Transformer* transformer = nullptr;
  const model::KvCache* kv = nullptr;  // its blocks hold nothing yet
  int32_t max_rows = 0;                // of a pass
  Clock now;
  std::function<void()> on_ready;  // called when the passes are done that the planner can least do without
  std::function<bool()> must_end;  // asked between later passes: a request has come
};

// Teaches the cost of passes of 1 to 64 rows. It takes at most about three seconds.
LearningPasses LearnStepCost(const LearningArgs& args, StepCost& step_cost);

}  // namespace foretoken::verifier
