// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/filter_cut.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace foretoken::kernels::cpu {
namespace {

std::vector<RankedToken>& Candidates() {
  thread_local std::vector<RankedToken> candidates;
  candidates.clear();
  return candidates;
}

}  // namespace

std::span<const RankedToken> TopTokens(std::span<const float> row, size_t count) {
  std::vector<RankedToken>& tokens = Candidates();
  for (size_t id = 0; id < row.size(); ++id) {
    if (row[id] > -std::numeric_limits<float>::infinity()) tokens.push_back({row[id], static_cast<int32_t>(id)});
  }
  if (count < tokens.size()) {
    std::nth_element(tokens.begin(), tokens.begin() + count, tokens.end());
    tokens.resize(count);
  }
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

FilterCut FindCut(std::span<const float> row, float max, const SamplingParams& sampling) {
  std::span<const RankedToken> kept = TopTokens(row, sampling.top_k > 0 ? sampling.top_k : row.size());
  const float inverse_temperature = 1.0f / sampling.temperature;
  const auto weight = [&](const RankedToken& token) {
    return std::exp(static_cast<double>((token.value - max) * inverse_temperature));
  };
  if (sampling.top_p < 1) {
    double total = 0, before = 0;
    for (const RankedToken& token : kept) total += weight(token);
    size_t count = 0;
    while (count < kept.size() && (count == 0 || before < sampling.top_p * total)) before += weight(kept[count++]);
    kept = kept.first(count);
  }
  if (sampling.min_p > 0) {
    const float least = std::log(sampling.min_p);
    while (kept.size() > 1 && (kept.back().value - max) * inverse_temperature < least)
      kept = kept.first(kept.size() - 1);
  }
  return {kept.back().value, kept.back().id};
}

}  // namespace foretoken::kernels::cpu
