// SPDX-License-Identifier: Apache-2.0
// The reference for draws: every filter sorts all tokens, in double precision. Only the adjusted logits are f32,
// because their ties decide the order of the cuts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace foretoken::reference {

struct DrawInputs {
  std::vector<float> logits;  // [V]
  kernels::SamplingParams sampling;
  uint32_t t = 0;
  std::vector<kernels::LogitBias> bias;
  std::vector<kernels::TokenCount> counts;
  std::vector<int32_t> path_token_ids;
  std::vector<uint32_t> mask;  // [ceil(V / 32)]; empty allows all tokens
};

// Returns the standard Gumbel noise of a token.
double TokenNoise(const kernels::SamplingParams& sampling, uint32_t t, uint32_t token_id);

// Returns the probability of each token after all filters. Empty if no token can be drawn.
std::vector<double> FilteredDistribution(const DrawInputs& inputs);

// Returns the drawn token, or nothing if no token can be drawn.
std::optional<int32_t> DrawToken(const DrawInputs& inputs);

std::vector<double> LogSoftmax(std::span<const float> logits);

}  // namespace foretoken::reference
