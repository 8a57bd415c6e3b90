// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/reference/sampling.h"
#include "tests/testing/cases/random_values.h"
#include "tests/testing/cases/token_mask.h"

namespace foretoken::testing {

inline std::vector<int32_t> DistinctIds(RandomValues& random, int32_t num_tokens, double chance) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < num_tokens; ++id) {
    if (random.Coin(chance)) ids.push_back(id);
  }
  return ids;
}

// Returns a random row. Every filter is on by chance. Values are often quantised, so that ties are common.
inline reference::DrawInputs RandomDrawInputs(RandomValues& random) {
  const int32_t num_tokens = 1 + random.Below(random.Coin(0.2) ? 5000 : 300);
  reference::DrawInputs inputs;
  inputs.logits = random.Normals(num_tokens, random.Coin(0.3) ? 0.5f : 4);
  if (random.Coin(0.4)) {
    for (float& logit : inputs.logits) logit = std::round(logit * 2) / 2;
  }
  if (random.Coin(0.2)) {
    for (float& logit : inputs.logits) logit = random.Coin(0.3) ? -std::numeric_limits<float>::infinity() : logit;
    inputs.logits[random.Below(num_tokens)] = 1;
  }
  kernels::SamplingParams& sampling = inputs.sampling;
  sampling.seed = static_cast<uint64_t>(random.Uniform() * 0x1p53);
  sampling.sample_index = random.Below(4);
  sampling.temperature = random.Coin(0.15) ? 0 : static_cast<float>(0.05 + 2 * random.Uniform());
  if (random.Coin(0.4)) sampling.top_k = 1 + random.Below(random.Coin(0.5) ? 20 : num_tokens + 5);
  if (random.Coin(0.4)) sampling.top_p = static_cast<float>(random.Uniform());
  if (random.Coin(0.3)) sampling.min_p = static_cast<float>(random.Uniform() * random.Uniform());
  if (random.Coin(0.3)) sampling.repetition_penalty = static_cast<float>(0.5 + random.Uniform() * 1.5);
  if (random.Coin(0.3)) sampling.presence_penalty = static_cast<float>(random.Uniform() * 4 - 2);
  if (random.Coin(0.3)) sampling.frequency_penalty = static_cast<float>(random.Uniform() * 4 - 2);
  inputs.t = random.Below(100000);
  for (const int32_t id : DistinctIds(random, num_tokens, 0.1)) {
    inputs.counts.push_back({id, random.Coin(0.3) ? 0 : 1 + random.Below(3)});
  }
  for (int32_t i = random.Below(6); i > 0; --i) inputs.path_token_ids.push_back(random.Below(num_tokens));
  if (random.Coin(0.3)) {
    for (const int32_t id : DistinctIds(random, num_tokens, 0.05)) inputs.bias.push_back({id, random.Normal() * 3});
  }
  if (random.Coin(0.4)) {
    inputs.mask = MaskWithout(num_tokens, DistinctIds(random, num_tokens, random.Coin(0.5) ? 0.05 : 0.9));
  }
  return inputs;
}

}  // namespace foretoken::testing
