// SPDX-License-Identifier: Apache-2.0
// Measures the cost of the bound on the time between tokens for a burst, that is, for prompts that come together.
// Compares runs with the bound and without it.
#pragma once

#include <cstdint>

#include "common/model/transformer.h"
#include "tests/bench/findings.h"

namespace foretoken::bench {

struct BurstSizes {
  int num_rounds = 5;
  int32_t num_tokens = 48;  // of each output
};

// Bursts of 8 and of 16 prompts of 32 to 128 tokens reach an idle engine. The first prompt comes alone, and the others
// while it is computed, as on a server. The engines with and without the bound take turns; ratios are medians over
// rounds. Then 16 prompts come while one older stream decodes.
void MeasureBursts(model::Transformer& transformer, int num_threads, const BurstSizes& sizes, Findings* findings);

}  // namespace foretoken::bench
