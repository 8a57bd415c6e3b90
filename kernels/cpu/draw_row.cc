// SPDX-License-Identifier: Apache-2.0
// Most tokens cannot win, and that is cheap to see: a chunk whose best logit would lose even with the largest noise is
// skipped before its noise is made, and a bound on the noise spares nearly all of the rest their logarithms.
#include "kernels/cpu/draw_row.h"

#include <algorithm>

#include "kernels/cpu/filter_cut.h"
#include "kernels/cpu/logits_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/draw_row.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/token_noise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

struct Leader {
  float score = kImpossible;
  int32_t id = 0;
};

// The exact scores of one vector of tokens, in ascending order, so that a tie stays with the lowest id.
HWY_ATTR void Challenge(FloatVec x, FloatVec scaled, WordVec words, int32_t first_id, const FilterCut& cut,
                        Leader& leader) {
  HWY_ALIGN float values[16];
  HWY_ALIGN float scores[16];
  hn::Store(x, kFloat, values);
  hn::Store(hn::Add(scaled, GumbelOf(words)), kFloat, scores);
  for (size_t i = 0; i < NumLanes(); ++i) {
    const int32_t id = first_id + static_cast<int32_t>(i);
    if (scores[i] > leader.score && cut.Keeps(values[i], id)) leader = {scores[i], id};
  }
}

int32_t DrawKeyed(std::span<const float> row, float max, const FilterCut& cut, const SamplingParams& sampling,
                  uint32_t t) {
  HWY_ALIGN float buffer[kLogitsBlock];
  HWY_ALIGN uint32_t words[kNoiseChunk];
  const hn::Rebind<uint32_t, FloatTag> word_tag;
  const size_t lanes = NumLanes();
  const NoiseStream stream{.key = sampling.seed, .t = t, .sample_index = sampling.sample_index};
  const FloatVec maxes = hn::Set(kFloat, max), scale = hn::Set(kFloat, 1.0f / sampling.temperature);
  const FloatVec largest_noise = hn::Set(kFloat, kLargestNoise);
  const float above_cut = std::nextafter(cut.value, std::numeric_limits<float>::infinity());
  Leader leader;
  for (size_t begin = 0; begin < row.size(); begin += kLogitsBlock) {
    const float* block = BlockOf(row, begin, buffer);
    for (size_t chunk = 0; chunk < kLogitsBlock && begin + chunk < row.size(); chunk += kNoiseChunk) {
      const float* x = block + chunk;
      const bool has_kept_ties = static_cast<int64_t>(begin + chunk) <= cut.id;
      const FloatVec least_value = hn::Set(kFloat, has_kept_ties ? cut.value : above_cut);
      FloatVec largest = hn::LoadU(kFloat, x);
      for (size_t i = lanes; i < kNoiseChunk; i += lanes) largest = hn::Max(largest, hn::LoadU(kFloat, x + i));
      const FloatVec at_most = hn::Add(hn::Mul(hn::Sub(largest, maxes), scale), largest_noise);
      const auto has_chance = hn::And(hn::Ge(at_most, hn::Set(kFloat, leader.score)), hn::Ge(largest, least_value));
      if (hn::AllFalse(kFloat, has_chance)) continue;
      FillNoiseWords(stream, static_cast<uint32_t>(begin + chunk), words);
      for (size_t i = 0; i < kNoiseChunk; i += lanes) {
        const FloatVec value = hn::LoadU(kFloat, x + i);
        const FloatVec scaled = hn::Mul(hn::Sub(value, maxes), scale);
        const WordVec word = hn::Load(word_tag, words + i);
        const auto may_win = hn::And(hn::Ge(hn::Add(scaled, GumbelBound(word)), hn::Set(kFloat, leader.score)),
                                     hn::Ge(value, least_value));
        if (HWY_UNLIKELY(!hn::AllFalse(kFloat, may_win))) {
          Challenge(value, scaled, word, static_cast<int32_t>(begin + chunk + i), cut, leader);
        }
      }
    }
  }
  return leader.id;
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(DrawKeyed);

RowDraw DrawRow(const AdjustRowArgs& args, uint32_t t) {
  const std::span<const float> row = AdjustRow(args);
  const RowMax top = FindMax(row);
  if (!top.is_finite) return {DrawStatus::kNonFiniteLogits};
  if (top.max == kImpossible) return {DrawStatus::kEmptySupport};
  const SamplingParams& sampling = args.sampling;
  if (sampling.is_greedy()) return {DrawStatus::kOk, top.id};
  FilterCut cut;
  if (sampling.top_k > 0 || sampling.top_p < 1 || sampling.min_p > 0) cut = FindCut(row, top.max, sampling);
  return {DrawStatus::kOk, HWY_DYNAMIC_DISPATCH(DrawKeyed)(row, top.max, cut, sampling, t)};
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
