// SPDX-License-Identifier: Apache-2.0
// A small top_k takes the top tokens in order and walks them; everything else searches by buckets.
#include "kernels/cpu/filter_cut.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/cpu/bucket_search.h"
#include "kernels/cpu/top_tokens.h"

namespace foretoken::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

// The last of the tokens, which are in order, that has less than top_p of their weight before it.
RankedToken EndOfNucleusInOrder(std::span<const RankedToken> tokens, float max, const SamplingParams& sampling) {
  const float inverse_temperature = 1.0f / sampling.temperature;
  const auto weight = [&](const RankedToken& token) {
    return std::exp(static_cast<double>((token.value - max) * inverse_temperature));
  };
  double total = 0;
  for (const RankedToken& token : tokens) total += weight(token);
  size_t last = 0;
  double before = weight(tokens[0]);
  while (last + 1 < tokens.size() && before < sampling.top_p * total) before += weight(tokens[++last]);
  return tokens[last];
}

RankedToken EndOfNucleus(const TokenView& tokens, float max, const SamplingParams& sampling) {
  // The largest token weighs 1, so all tokens below this together weigh less than what the nucleus may leave out.
  const double least_log_weight = std::log((1 - double{sampling.top_p}) / static_cast<double>(tokens.values.size()));
  const double low = std::max(max + least_log_weight * sampling.temperature, double{kLowest});
  return FindShare({.tokens = tokens,
                    .weighing = {.max = max, .inverse_temperature = 1.0f / sampling.temperature},
                    .share = sampling.top_p,
                    .low = static_cast<float>(low)});
}

// Nothing where all tokens that are possible are kept.
std::optional<RankedToken> EndOfTopK(std::span<const float> row, float max, const SamplingParams& sampling) {
  if (IsFewTokens(row.size(), sampling.top_k)) {
    const std::span<const RankedToken> kept = TopTokens(row, sampling.top_k);
    return sampling.top_p < 1 ? EndOfNucleusInOrder(kept, max, sampling) : kept.back();
  }
  const std::optional<RankedToken> last = FindNth(row, sampling.top_k);
  if (sampling.top_p >= 1) return last;
  return EndOfNucleus(last.has_value() ? CollectUpTo(row, *last) : TokenView{row, {}}, max, sampling);
}

std::optional<RankedToken> EndOfCut(std::span<const float> row, float max, const SamplingParams& sampling) {
  if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < row.size()) return EndOfTopK(row, max, sampling);
  if (sampling.top_p < 1) return EndOfNucleus({row, {}}, max, sampling);
  return std::nullopt;
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
  FilterCut cut;
  if (const std::optional<RankedToken> last = EndOfCut(row, max, sampling)) cut = {last->value, last->id};
  if (sampling.min_p > 0) {
    const float least = LeastByMinP(max, sampling);
    if (least > cut.value) cut = {.value = least};
  }
  return cut;
}

}  // namespace foretoken::kernels::cpu
