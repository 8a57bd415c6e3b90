// SPDX-License-Identifier: Apache-2.0
// For a small top_k it walks the top tokens in order. For everything else it searches (cut_search.h).
#include "kernels/cpu/draw/filter_cut.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/cpu/draw/cut_search.h"
#include "kernels/cpu/draw/token_split.h"
#include "kernels/cpu/draw/top_tokens.h"

namespace foretoken::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

// The last of the ordered tokens that has less than top_p of their weight before it.
OrderedToken EndOfNucleus(std::span<const OrderedToken> tokens, float max, const SamplingParams& sampling) {
  const float inverse_temperature = 1.0f / sampling.temperature;
  const auto weight = [&](const OrderedToken& token) {
    return std::exp(static_cast<double>((token.value - max) * inverse_temperature));
  };
  double total = 0;
  for (const OrderedToken& token : tokens) total += weight(token);
  size_t last = 0;
  double before = weight(tokens[0]);
  while (last + 1 < tokens.size() && before < sampling.top_p * total) before += weight(tokens[++last]);
  return tokens[last];
}

// Above this number a search costs less than sorting.
bool AreFew(size_t top_k, size_t num_tokens) { return top_k <= num_tokens / 512; }

OrderedToken EndOfCut(std::span<const float> row, float max, const SamplingParams& sampling) {
  std::optional<size_t> top_k;
  if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < row.size()) top_k = sampling.top_k;
  if (top_k.has_value() && AreFew(*top_k, row.size())) {
    const std::span<const OrderedToken> kept = TopTokens(row, *top_k);
    return sampling.top_p < 1 ? EndOfNucleus(kept, max, sampling) : kept.back();
  }
  if (sampling.top_p < 1) {
    return FindShare(row, top_k, {.max = max, .temperature = sampling.temperature}, sampling.top_p);
  }
  return top_k.has_value() ? FindNth(row, *top_k) : kNoneBehind;
}

// The least f32 that min_p keeps: the bound in double, rounded up.
float LeastByMinP(float max, const SamplingParams& sampling) {
  const double bound = max + std::log(double{sampling.min_p}) * sampling.temperature;
  if (bound <= kLowest) return kLowest;
  const auto least = static_cast<float>(bound);
  return least < bound ? std::nextafter(least, kInfinity) : least;
}

}  // namespace

FilterCut FindCut(std::span<const float> row, float max, const SamplingParams& sampling) {
  const OrderedToken last = EndOfCut(row, max, sampling);
  FilterCut cut = {last.value, last.id};
  if (sampling.min_p > 0) {
    const float least = LeastByMinP(max, sampling);
    if (least > cut.value) cut = {.value = least};
  }
  return cut;
}

}  // namespace foretoken::kernels::cpu
