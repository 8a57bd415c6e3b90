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
  const model::KvCache* kv = nullptr;  // no request has written to its blocks yet
  int32_t max_rows = 0;                // the most rows of a pass
  Clock now;
  std::function<void()> on_ready;  // called after the most important passes
  std::function<bool()> must_end;  // asked between later passes; true once a request has come
};

// Measures passes of 1 to 64 rows and teaches their times to `step_cost`. Takes at most about three seconds.
LearningPasses LearnStepCost(const LearningArgs& args, StepCost& step_cost);

}  // namespace foretoken::verifier
