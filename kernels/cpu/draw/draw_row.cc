// SPDX-License-Identifier: Apache-2.0
// Most tokens cannot win, and cheap tests show it. The scan skips a chunk whose best logit would lose even with the
// largest noise, before it makes the chunk's noise. A bound on the noise spares nearly all other tokens their
// logarithms. The same scan finds the first token and the first few tokens; only the score to beat differs.
#include "kernels/cpu/draw/draw_row.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/cpu/draw/filter_cut.h"
#include "kernels/cpu/draw/logits_row.h"
#include "kernels/cpu/draw/top_tokens.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/draw/draw_row.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/base/simd-inl.h"
#include "kernels/cpu/draw/token_noise-inl.h"

#ifndef FORETOKEN_KERNELS_CPU_DRAW_ROW_CC_
#define FORETOKEN_KERNELS_CPU_DRAW_ROW_CC_
namespace foretoken::kernels::cpu {

struct Leader {
  float score = kImpossible;
  int32_t id = 0;

  float score_to_beat() const { return score; }
  void Add(int32_t new_id, float new_score) {
    score = new_score;
    id = new_id;
  }
};

// The best `count` tokens, by (score descending, id ascending). Tokens arrive with ascending ids.
class TopLeaders {
 public:
  explicit TopLeaders(size_t count) : count_(count) { tokens_.reserve(count + 1); }

  float score_to_beat() const { return tokens_.size() < count_ ? kImpossible : tokens_.back().score; }
  void Add(int32_t id, float score) {
    const auto place = std::upper_bound(tokens_.begin(), tokens_.end(), score,
                                        [](float a, const ScoredToken& b) { return a > b.score; });
    tokens_.insert(place, {id, score});
    if (tokens_.size() > count_) tokens_.pop_back();
  }
  std::vector<ScoredToken>& tokens() { return tokens_; }

 private:
  size_t count_;
  std::vector<ScoredToken> tokens_;
};

}  // namespace foretoken::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

// Computes the exact scores of one vector of tokens and offers them in ascending order of ids, so that a tie goes to
// the lowest id.
template <typename Leaders>
HWY_ATTR void Challenge(FloatVec x, FloatVec scaled, WordVec words, int32_t first_id, const FilterCut& cut,
                        Leaders& leaders) {
  HWY_ALIGN float values[16];
  HWY_ALIGN float scores[16];
  hn::Store(x, kFloat, values);
  hn::Store(hn::Add(scaled, GumbelOf(words)), kFloat, scores);
  for (size_t i = 0; i < NumLanes(); ++i) {
    const int32_t id = first_id + static_cast<int32_t>(i);
    if (scores[i] > leaders.score_to_beat() && cut.Keeps(values[i], id)) leaders.Add(id, scores[i]);
  }
}

template <typename Leaders>
HWY_ATTR void ScanKeyed(std::span<const float> row, float max, const FilterCut& cut, const NoiseStream& stream,
                        float temperature, Leaders& leaders) {
  HWY_ALIGN float buffer[kLogitsBlock];
  HWY_ALIGN uint32_t words[kNoiseChunk];
  const hn::Rebind<uint32_t, FloatTag> word_tag;
  const size_t lanes = NumLanes();
  const FloatVec maxes = hn::Set(kFloat, max), scale = hn::Set(kFloat, 1.0f / temperature);
  const FloatVec largest_noise = hn::Set(kFloat, kLargestNoise);
  const float above_cut = std::nextafter(cut.value, std::numeric_limits<float>::infinity());
  for (size_t begin = 0; begin < row.size(); begin += kLogitsBlock) {
    const float* block = BlockOf(row, begin, buffer);
    for (size_t chunk = 0; chunk < kLogitsBlock && begin + chunk < row.size(); chunk += kNoiseChunk) {
      const float* x = block + chunk;
      const bool has_kept_ties = static_cast<int64_t>(begin + chunk) <= cut.id;
      const FloatVec least_value = hn::Set(kFloat, has_kept_ties ? cut.value : above_cut);
      FloatVec largest = hn::LoadU(kFloat, x);
      for (size_t i = lanes; i < kNoiseChunk; i += lanes) largest = hn::Max(largest, hn::LoadU(kFloat, x + i));
      const FloatVec at_most = hn::Add(hn::Mul(hn::Sub(largest, maxes), scale), largest_noise);
      const auto has_chance =
          hn::And(hn::Ge(at_most, hn::Set(kFloat, leaders.score_to_beat())), hn::Ge(largest, least_value));
      if (hn::AllFalse(kFloat, has_chance)) continue;
      FillNoiseWords(stream, static_cast<uint32_t>(begin + chunk), words);
      for (size_t i = 0; i < kNoiseChunk; i += lanes) {
        const FloatVec value = hn::LoadU(kFloat, x + i);
        const FloatVec scaled = hn::Mul(hn::Sub(value, maxes), scale);
        const WordVec word = hn::Load(word_tag, words + i);
        const auto may_win =
            hn::And(hn::Ge(hn::Add(scaled, GumbelBound(word)), hn::Set(kFloat, leaders.score_to_beat())),
                    hn::Ge(value, least_value));
        if (HWY_UNLIKELY(!hn::AllFalse(kFloat, may_win))) {
          Challenge(value, scaled, word, static_cast<int32_t>(begin + chunk + i), cut, leaders);
        }
      }
    }
  }
}

NoiseStream StreamOf(const SamplingParams& sampling, uint32_t t) {
  return {.key = sampling.seed, .t = t, .sample_index = sampling.sample_index};
}

int32_t DrawKeyed(std::span<const float> row, float max, const FilterCut& cut, const SamplingParams& sampling,
                  uint32_t t) {
  Leader leader;
  ScanKeyed(row, max, cut, StreamOf(sampling, t), sampling.temperature, leader);
  return leader.id;
}

void DrawTopKeyed(std::span<const float> row, float max, const FilterCut& cut, const SamplingParams& sampling,
                  uint32_t t, TopLeaders& leaders) {
  ScanKeyed(row, max, cut, StreamOf(sampling, t), sampling.temperature, leaders);
}

// Sum of exp((x - max) / temperature) over the tokens that the cut keeps. The sum is f32 within a block and double over
// blocks.
double SumKept(std::span<const float> row, float max, float inverse_temperature, const FilterCut& cut) {
  HWY_ALIGN float buffer[kLogitsBlock];
  const hn::Rebind<int32_t, FloatTag> int_tag;
  const FloatVec maxes = hn::Set(kFloat, max), scale = hn::Set(kFloat, inverse_temperature);
  const FloatVec cut_value = hn::Set(kFloat, cut.value);
  const auto cut_id = hn::Set(int_tag, cut.id);
  double sum = 0;
  for (size_t begin = 0; begin < row.size(); begin += kLogitsBlock) {
    const float* x = BlockOf(row, begin, buffer);
    FloatVec block_sum = hn::Zero(kFloat);
    for (size_t i = 0; i < kLogitsBlock; i += NumLanes()) {
      const FloatVec value = hn::LoadU(kFloat, x + i);
      const auto ids = hn::Iota(int_tag, static_cast<int32_t>(begin + i));
      const auto at_cut = hn::AndNot(hn::RebindMask(kFloat, hn::Gt(ids, cut_id)), hn::Eq(value, cut_value));
      const auto is_kept = hn::Or(hn::Gt(value, cut_value), at_cut);
      const FloatVec weight = hn::Exp(kFloat, hn::Mul(hn::Sub(value, maxes), scale));
      block_sum = hn::Add(block_sum, hn::IfThenElseZero(is_kept, weight));
    }
    sum += hn::GetLane(hn::SumOfLanes(kFloat, block_sum));
  }
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(DrawKeyed);
HWY_EXPORT(DrawTopKeyed);
HWY_EXPORT(SumKept);

namespace {

bool HasCut(const SamplingParams& sampling) { return sampling.top_k > 0 || sampling.top_p < 1 || sampling.min_p > 0; }

RowChildren TopOfLogits(std::span<const float> logits, float max, int32_t count) {
  RowChildren result;
  const auto log_total = static_cast<float>(std::log(SumOfExps(logits, max, 1)));
  for (const OrderedToken& token : TopTokens(logits, count)) {
    result.children.push_back({token.id, token.value - max - log_total});
  }
  return result;
}

}  // namespace

RowDraw DrawRow(const AdjustRowArgs& args, uint32_t t) {
  const std::span<const float> row = AdjustRow(args);
  const RowMax top = FindMax(row);
  if (!top.is_finite) return {DrawStatus::kNonFiniteLogits};
  if (top.max == kImpossible) return {DrawStatus::kEmptySupport};
  const SamplingParams& sampling = args.sampling;
  if (sampling.is_greedy()) return {DrawStatus::kOk, top.id};
  FilterCut cut;
  if (HasCut(sampling)) cut = FindCut(row, top.max, sampling);
  return {DrawStatus::kOk, HWY_DYNAMIC_DISPATCH(DrawKeyed)(row, top.max, cut, sampling, t)};
}

RowChildren TopDraftProbs(std::span<const float> logits, const SamplingParams& sampling, int32_t count) {
  const RowMax top = FindMax(logits);
  if (!top.is_finite) return {DrawStatus::kNonFiniteLogits};
  if (top.max == kImpossible) return {DrawStatus::kEmptySupport};
  if (sampling.is_greedy()) return TopOfLogits(logits, top.max, count);
  FilterCut cut;
  if (HasCut(sampling)) cut = FindCut(logits, top.max, sampling);
  const float scale = 1.0f / sampling.temperature;
  const auto log_total = static_cast<float>(std::log(HWY_DYNAMIC_DISPATCH(SumKept)(logits, top.max, scale, cut)));
  RowChildren result;
  for (const OrderedToken& token : TopTokens(logits, count)) {
    if (!cut.Keeps(token.value, token.id)) break;
    result.children.push_back({token.id, (token.value - top.max) * scale - log_total});
  }
  return result;
}

RowChildren DrawTopTokens(std::span<const float> logits, const SamplingParams& sampling, uint32_t t, int32_t count) {
  const RowMax top = FindMax(logits);
  if (!top.is_finite) return {DrawStatus::kNonFiniteLogits};
  if (top.max == kImpossible) return {DrawStatus::kEmptySupport};
  if (sampling.is_greedy()) return TopOfLogits(logits, top.max, count);
  FilterCut cut;
  if (HasCut(sampling)) cut = FindCut(logits, top.max, sampling);
  TopLeaders leaders(std::min(static_cast<size_t>(count), logits.size()));
  HWY_DYNAMIC_DISPATCH(DrawTopKeyed)(logits, top.max, cut, sampling, t, leaders);
  const double total = HWY_DYNAMIC_DISPATCH(SumKept)(logits, top.max, 1.0f / sampling.temperature, cut);
  const auto log_total = static_cast<float>(std::log(total));
  for (ScoredToken& token : leaders.tokens()) token.score -= log_total;
  return {DrawStatus::kOk, std::move(leaders.tokens())};
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
