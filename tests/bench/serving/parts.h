// SPDX-License-Identifier: Apache-2.0
// The parts of serving_bench. Each adds its findings, and fails where a request failed or a token differs between the
// ways of one request: no number is worth anything then.
#pragma once

#include "absl/status/status.h"
#include "tests/bench/findings.h"
#include "tests/bench/serving/setup.h"

namespace foretoken::bench {

// One client, the demo's prompts, suffix and draft: is what tokens per step and the cost of a step promise reached?
absl::Status MeasureTheory(Setup& setup, Findings* findings);

}  // namespace foretoken::bench
