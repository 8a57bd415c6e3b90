// SPDX-License-Identifier: Apache-2.0
// No full sort. The k first tokens: the row is dealt into classes of 64 entries; at least k tokens are as large as the
// k-th largest class maximum, and all that are lie in the classes that reach it. The nucleus: the value where it ends
// is bracketed by summing the weights above several pivots at once, and only the tokens in the bracket are sorted.
#include "kernels/cpu/filter_cut.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "kernels/cpu/logits_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/filter_cut.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

#ifndef FORETOKEN_KERNELS_CPU_FILTER_CUT_CC_
#define FORETOKEN_KERNELS_CPU_FILTER_CUT_CC_
namespace foretoken::kernels::cpu {

// Class c of a block holds its entries c, c + 16, c + 32, ...: what a vector of 16 lanes collects without shuffling.
inline constexpr size_t kClassesPerBlock = 16;
inline constexpr size_t kNumPivots = 8;
using Pivots = std::array<float, kNumPivots>;
using Masses = std::array<double, kNumPivots>;

struct WeighedRow {
  std::span<const float> row;
  const float* weights = nullptr;  // exp((x - max) / temperature), zeros up to a whole block
};

}  // namespace foretoken::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

void FindClassMaxima(std::span<const float> row, float* maxima) {
  HWY_ALIGN float buffer[kLogitsBlock];
  for (size_t begin = 0; begin < row.size(); begin += kLogitsBlock) {
    const float* x = BlockOf(row, begin, buffer);
    for (size_t c = 0; c < kClassesPerBlock; c += NumLanes(), maxima += NumLanes()) {
      FloatVec max0 = hn::Set(kFloat, kImpossible), max1 = max0;
      for (size_t i = c; i < kLogitsBlock; i += 2 * kClassesPerBlock) {
        max0 = hn::Max(max0, hn::LoadU(kFloat, x + i));
        max1 = hn::Max(max1, hn::LoadU(kFloat, x + i + kClassesPerBlock));
      }
      hn::StoreU(hn::Max(max0, max1), kFloat, maxima);
    }
  }
}

// Fills the weights and returns their sum.
double WeighRow(std::span<const float> row, float max, float inverse_temperature, float* weights) {
  HWY_ALIGN float buffer[kLogitsBlock];
  const FloatVec maxes = hn::Set(kFloat, max), scale = hn::Set(kFloat, inverse_temperature);
  double total = 0;
  for (size_t begin = 0; begin < row.size(); begin += kLogitsBlock) {
    const float* x = BlockOf(row, begin, buffer);
    FloatVec sum = hn::Zero(kFloat);
    for (size_t i = 0; i < kLogitsBlock; i += NumLanes()) {
      const FloatVec weight = hn::Exp(kFloat, hn::Mul(hn::Sub(hn::LoadU(kFloat, x + i), maxes), scale));
      hn::StoreU(weight, kFloat, weights + begin + i);
      sum = hn::Add(sum, weight);
    }
    total += hn::GetLane(hn::SumOfLanes(kFloat, sum));
  }
  return total;
}

// The weight of all tokens at or above each pivot.
void SumAbovePivots(const WeighedRow& weighed, const Pivots& pivots, Masses& masses) {
  HWY_ALIGN float buffer[kLogitsBlock];
  masses.fill(0);
  for (size_t begin = 0; begin < weighed.row.size(); begin += kLogitsBlock) {
    const float* x = BlockOf(weighed.row, begin, buffer);
    const float* w = weighed.weights + begin;
    FloatVec sums[kNumPivots];
#pragma GCC unroll 8
    for (size_t p = 0; p < kNumPivots; ++p) sums[p] = hn::Zero(kFloat);
    for (size_t i = 0; i < kLogitsBlock; i += NumLanes()) {
      const FloatVec value = hn::LoadU(kFloat, x + i), weight = hn::LoadU(kFloat, w + i);
#pragma GCC unroll 8
      for (size_t p = 0; p < kNumPivots; ++p) {
        const auto above = hn::Ge(value, hn::Set(kFloat, pivots[p]));
        sums[p] = hn::Add(sums[p], hn::IfThenElseZero(above, weight));
      }
    }
#pragma GCC unroll 8
    for (size_t p = 0; p < kNumPivots; ++p) masses[p] += hn::GetLane(hn::SumOfLanes(kFloat, sums[p]));
  }
}

// How many values lie in [low, high).
size_t CountBetween(std::span<const float> row, float low, float high) {
  HWY_ALIGN float buffer[kLogitsBlock];
  const FloatVec lows = hn::Set(kFloat, low), highs = hn::Set(kFloat, high);
  size_t count = 0;
  for (size_t begin = 0; begin < row.size(); begin += kLogitsBlock) {
    const float* x = BlockOf(row, begin, buffer);
    for (size_t i = 0; i < kLogitsBlock; i += NumLanes()) {
      const FloatVec value = hn::LoadU(kFloat, x + i);
      count += hn::CountTrue(kFloat, hn::And(hn::Ge(value, lows), hn::Lt(value, highs)));
    }
  }
  return count;
}

// Appends the tokens with values in [low, high), ids ascending.
void CollectBetween(std::span<const float> row, float low, float high, std::vector<RankedToken>& tokens) {
  HWY_ALIGN float buffer[kLogitsBlock];
  const FloatVec lows = hn::Set(kFloat, low), highs = hn::Set(kFloat, high);
  for (size_t begin = 0; begin < row.size(); begin += kLogitsBlock) {
    const float* x = BlockOf(row, begin, buffer);
    for (size_t i = 0; i < kLogitsBlock; i += NumLanes()) {
      const FloatVec value = hn::LoadU(kFloat, x + i);
      if (hn::AllFalse(kFloat, hn::And(hn::Ge(value, lows), hn::Lt(value, highs)))) continue;
      for (size_t j = i; j < i + NumLanes(); ++j) {
        if (x[j] >= low && x[j] < high) tokens.push_back({x[j], static_cast<int32_t>(begin + j)});
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(FindClassMaxima);
HWY_EXPORT(WeighRow);
HWY_EXPORT(SumAbovePivots);
HWY_EXPORT(CountBetween);
HWY_EXPORT(CollectBetween);

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

struct Scratch {
  std::vector<RankedToken> tokens;
  std::vector<float> maxima;   // of classes, in order
  std::vector<float> ordered;  // the same, partly sorted
  std::vector<float> weights;
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

size_t NumBlocks(std::span<const float> row) { return (row.size() + kLogitsBlock - 1) / kLogitsBlock; }

// Appends at least the first `count` tokens of the order; count is at most the number of classes.
void CollectTopClasses(std::span<const float> row, size_t count, Scratch& scratch) {
  scratch.maxima.resize(NumBlocks(row) * kClassesPerBlock);
  HWY_DYNAMIC_DISPATCH(FindClassMaxima)(row, scratch.maxima.data());
  scratch.ordered = scratch.maxima;
  std::nth_element(scratch.ordered.begin(), scratch.ordered.begin() + (count - 1), scratch.ordered.end(),
                   std::greater<>());
  const float floor = std::max(scratch.ordered[count - 1], kLowest);
  for (size_t i = 0; i < scratch.maxima.size(); ++i) {
    if (scratch.maxima[i] < floor) continue;
    const size_t begin = i / kClassesPerBlock * kLogitsBlock;
    const size_t end = std::min(begin + kLogitsBlock, row.size());
    for (size_t id = begin + i % kClassesPerBlock; id < end; id += kClassesPerBlock) {
      if (row[id] >= floor) scratch.tokens.push_back({row[id], static_cast<int32_t>(id)});
    }
  }
}

// Values [low, high) that hold the end of the nucleus, and the weight above them.
struct Bracket {
  float low = kLowest;
  float high = kInfinity;
  double mass_above = 0;
};

// Narrows until few tokens are left, or further rounds do not help: then equal values abound, and sorting copes.
Bracket FindBracket(const WeighedRow& weighed, float low, float max, double target) {
  constexpr size_t kFewTokens = 512;
  constexpr int kMaxRounds = 6;
  Bracket bracket{.low = low};
  float top = max;
  for (int round = 0; round < kMaxRounds; ++round) {
    if (HWY_DYNAMIC_DISPATCH(CountBetween)(weighed.row, bracket.low, bracket.high) <= kFewTokens) break;
    Pivots pivots;
    for (size_t p = 0; p < kNumPivots; ++p) {
      pivots[p] = bracket.low + (top - bracket.low) * (static_cast<float>(p + 1) / (kNumPivots + 1));
    }
    Masses masses;
    HWY_DYNAMIC_DISPATCH(SumAbovePivots)(weighed, pivots, masses);
    for (size_t p = 0; p < kNumPivots; ++p) {
      if (masses[p] >= target) {
        bracket.low = pivots[p];
      } else {
        bracket.high = top = pivots[p];
        bracket.mass_above = masses[p];
        break;
      }
    }
  }
  return bracket;
}

// The last token of `tokens`, which are in order, that has less than `target` of weight before it.
template <typename Weight>
RankedToken LastBefore(std::span<const RankedToken> tokens, double mass_above, double target, const Weight& weight) {
  size_t last = 0;
  double before = mass_above + weight(tokens[0]);
  while (last + 1 < tokens.size() && before < target) before += weight(tokens[++last]);
  return tokens[last];
}

RankedToken EndOfNucleus(std::span<const float> row, float max, const SamplingParams& sampling) {
  Scratch& scratch = ThreadScratch();
  scratch.weights.resize(NumBlocks(row) * kLogitsBlock);
  const float inverse_temperature = 1.0f / sampling.temperature;
  const double total = HWY_DYNAMIC_DISPATCH(WeighRow)(row, max, inverse_temperature, scratch.weights.data());
  const double target = sampling.top_p * total;
  // All tokens below this together weigh less than what the nucleus may leave out.
  const double least_log_weight = std::log((1 - sampling.top_p) * total / static_cast<double>(row.size())) - 1e-3;
  const double low = max + least_log_weight * sampling.temperature;
  const float floor = std::max(std::nextafter(static_cast<float>(low), -kInfinity), kLowest);
  const Bracket bracket = FindBracket({row, scratch.weights.data()}, floor, max, target);
  scratch.tokens.clear();
  HWY_DYNAMIC_DISPATCH(CollectBetween)(row, bracket.low, bracket.high, scratch.tokens);
  // With top_p within rounding of 1, tokens below the floor can make the difference. They may go: all above stay.
  if (scratch.tokens.empty()) return {bracket.high, std::numeric_limits<int32_t>::max()};
  std::sort(scratch.tokens.begin(), scratch.tokens.end());
  const auto weight = [&](const RankedToken& token) { return double{scratch.weights[token.id]}; };
  return LastBefore(scratch.tokens, bracket.mass_above, target, weight);
}

RankedToken EndOfTopK(std::span<const float> row, float max, const SamplingParams& sampling) {
  const std::span<const RankedToken> kept = TopTokens(row, sampling.top_k);
  if (sampling.top_p >= 1) return kept.back();
  const float inverse_temperature = 1.0f / sampling.temperature;
  const auto weight = [&](const RankedToken& token) {
    return std::exp(static_cast<double>((token.value - max) * inverse_temperature));
  };
  double total = 0;
  for (const RankedToken& token : kept) total += weight(token);
  return LastBefore(kept, 0, sampling.top_p * total, weight);
}

// The least f32 that min_p keeps: the bound in double, rounded up.
float LeastByMinP(float max, const SamplingParams& sampling) {
  const double bound = max + std::log(double{sampling.min_p}) * sampling.temperature;
  if (bound <= kLowest) return kLowest;
  const auto least = static_cast<float>(bound);
  return least < bound ? std::nextafter(least, kInfinity) : least;
}

}  // namespace

std::span<const RankedToken> TopTokens(std::span<const float> row, size_t count) {
  Scratch& scratch = ThreadScratch();
  std::vector<RankedToken>& tokens = scratch.tokens;
  tokens.clear();
  if (count == 0) return tokens;
  if (2 * count <= NumBlocks(row) * kClassesPerBlock) {
    CollectTopClasses(row, count, scratch);
  } else {
    HWY_DYNAMIC_DISPATCH(CollectBetween)(row, kLowest, kInfinity, tokens);
  }
  if (count < tokens.size()) {
    std::nth_element(tokens.begin(), tokens.begin() + count, tokens.end());
    tokens.resize(count);
  }
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

FilterCut FindCut(std::span<const float> row, float max, const SamplingParams& sampling) {
  FilterCut cut;
  if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < row.size()) {
    const RankedToken last = EndOfTopK(row, max, sampling);
    cut = {last.value, last.id};
  } else if (sampling.top_p < 1) {
    const RankedToken last = EndOfNucleus(row, max, sampling);
    cut = {last.value, last.id};
  }
  if (sampling.min_p > 0) {
    const float least = LeastByMinP(max, sampling);
    if (least > cut.value) cut = {.value = least};
  }
  return cut;
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
