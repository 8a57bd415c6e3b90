// SPDX-License-Identifier: Apache-2.0
// The row is divided into classes of 64 entries. At least k tokens are as large as the k-th largest class maximum, and
// all tokens that large lie in the classes that reach it. Only these few classes are read again, and only their tokens
// are sorted.
#include "kernels/cpu/draw/top_tokens.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/cpu/draw/logits_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/draw/top_tokens.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/base/simd-inl.h"

#ifndef FORETOKEN_KERNELS_CPU_TOP_TOKENS_CC_
#define FORETOKEN_KERNELS_CPU_TOP_TOKENS_CC_
namespace foretoken::kernels::cpu {

// Class c of a block holds its entries c, c + 16, c + 32, ...: a vector of 16 lanes collects them without shuffling.
inline constexpr size_t kClassesPerBlock = 16;

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

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(FindClassMaxima);

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

struct Scratch {
  std::vector<OrderedToken> tokens;
  std::vector<float> maxima;   // of classes, in order
  std::vector<float> ordered;  // the same maxima, partly sorted
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

size_t NumClasses(size_t num_tokens) { return (num_tokens + kLogitsBlock - 1) / kLogitsBlock * kClassesPerBlock; }

// Appends at least the first `count` tokens of the order. `count` is at most the number of classes. Tokens
// equal to the bound are taken in whole blocks until there are enough: a row of equal values has too many.
void CollectTopClasses(std::span<const float> row, size_t count, Scratch& scratch) {
  scratch.maxima.resize(NumClasses(row.size()));
  HWY_DYNAMIC_DISPATCH(FindClassMaxima)(row, scratch.maxima.data());
  scratch.ordered = scratch.maxima;
  std::nth_element(scratch.ordered.begin(), scratch.ordered.begin() + (count - 1), scratch.ordered.end(),
                   std::greater<>());
  float least = std::max(scratch.ordered[count - 1], kLowest);
  const float bound = least;
  size_t num_equal = 0;
  for (size_t i = 0; i < scratch.maxima.size(); ++i) {
    if (i % kClassesPerBlock == 0 && num_equal >= count) least = std::nextafter(bound, kInfinity);
    if (scratch.maxima[i] < least) continue;
    const size_t begin = i / kClassesPerBlock * kLogitsBlock;
    const size_t end = std::min(begin + kLogitsBlock, row.size());
    for (size_t id = begin + i % kClassesPerBlock; id < end; id += kClassesPerBlock) {
      if (row[id] < least) continue;
      num_equal += row[id] == bound ? 1 : 0;
      scratch.tokens.push_back({row[id], static_cast<int32_t>(id)});
    }
  }
}

}  // namespace

std::span<const OrderedToken> TopTokens(std::span<const float> row, size_t count) {
  Scratch& scratch = ThreadScratch();
  std::vector<OrderedToken>& tokens = scratch.tokens;
  tokens.clear();
  if (count == 0) return tokens;
  if (2 * count <= NumClasses(row.size())) {
    CollectTopClasses(row, count, scratch);
  } else {
    for (size_t id = 0; id < row.size(); ++id) {
      if (row[id] >= kLowest) tokens.push_back({row[id], static_cast<int32_t>(id)});
    }
  }
  if (count < tokens.size()) {
    std::nth_element(tokens.begin(), tokens.begin() + count, tokens.end());
    tokens.resize(count);
  }
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
