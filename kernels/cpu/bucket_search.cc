// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/bucket_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/logits_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/bucket_search.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/simd-inl.h"

#ifndef FORETOKEN_KERNELS_CPU_BUCKET_SEARCH_CC_
#define FORETOKEN_KERNELS_CPU_BUCKET_SEARCH_CC_
namespace foretoken::kernels::cpu {

inline constexpr size_t kNumBuckets = 512;
// Neighbours add to different copies: equal values, of which rows have many, do not wait for each other.
inline constexpr size_t kNumCopies = 4;
inline constexpr size_t kDealt = 64;  // tokens at a time
using BucketCopies = std::array<std::array<double, kNumBuckets>, kNumCopies>;
using Buckets = std::array<double, kNumBuckets>;

// The bucket of x is (x - low) * scale without its fraction, and the first or last one for what lies outside. Rounding
// keeps the order of values, and that is all that is asked of it.
struct Division {
  float low = 0;
  float scale = 1;
};

// Which places (x - low) * scale a bucket takes: [begin, end).
struct BucketRange {
  float begin = 0;
  float end = 0;
};

// Grows and never shrinks, so that no round fills memory that it overwrites. A whole vector is stored behind the last.
struct Candidates {
  std::vector<float> values;
  std::vector<int32_t> ids;
  size_t count = 0;

  void Reserve(size_t num_tokens) {
    constexpr size_t kVectorBehind = 16;
    if (values.size() >= num_tokens + kVectorBehind) return;
    values.resize(num_tokens + kVectorBehind);
    ids.resize(num_tokens + kVectorBehind);
  }
  TokenView view() const { return {{values.data(), count}, {ids.data(), count}}; }
};

struct Extent {
  float min = 0;
  float max = 0;
};

}  // namespace foretoken::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

using IntTag = hn::Rebind<int32_t, FloatTag>;
inline constexpr IntTag kInt;
using IntVec = hn::Vec<IntTag>;

inline HWY_ATTR FloatVec PlaceOf(FloatVec x, const Division& division) {
  return hn::Mul(hn::Sub(x, hn::Set(kFloat, division.low)), hn::Set(kFloat, division.scale));
}

// Without weighing every token above -inf adds one.
inline HWY_ATTR FloatVec WeightOf(FloatVec x, const std::optional<Weighing>& weighing) {
  if (!weighing.has_value()) {
    return hn::IfThenElseZero(hn::Gt(x, hn::Set(kFloat, kImpossible)), hn::Set(kFloat, 1.0f));
  }
  const FloatVec below_max = hn::Sub(x, hn::Set(kFloat, weighing->max));
  return hn::Exp(kFloat, hn::Mul(below_max, hn::Set(kFloat, weighing->inverse_temperature)));
}

void Deal(std::span<const float> values, const Division& division, const std::optional<Weighing>& weighing,
          BucketCopies& copies) {
  HWY_ALIGN float buffer[kLogitsBlock];
  HWY_ALIGN int32_t buckets[kDealt];
  HWY_ALIGN float weights[kDealt];
  const FloatVec first = hn::Zero(kFloat), last = hn::Set(kFloat, static_cast<float>(kNumBuckets - 1));
  for (size_t begin = 0; begin < values.size(); begin += kLogitsBlock) {
    const float* block = BlockOf(values, begin, buffer);
    for (size_t part = 0; part < kLogitsBlock; part += kDealt) {
      for (size_t i = 0; i < kDealt; i += NumLanes()) {
        const FloatVec x = hn::LoadU(kFloat, block + part + i);
        const FloatVec place = hn::Min(hn::Max(PlaceOf(x, division), first), last);
        hn::Store(hn::ConvertTo(kInt, place), kInt, buckets + i);
        hn::Store(WeightOf(x, weighing), kFloat, weights + i);
      }
#pragma GCC unroll 16
      for (size_t i = 0; i < kDealt; ++i) copies[i % kNumCopies][buckets[i]] += weights[i];
    }
  }
}

// Leaves in `to` the tokens for whose values (and places) `is_inside` says so. Nothing at -inf.
template <typename IsInside>
HWY_ATTR void Collect(const TokenView& from, Candidates& to, const IsInside& is_inside) {
  HWY_ALIGN float buffer[kLogitsBlock];
  to.Reserve(from.values.size());
  const FloatVec impossible = hn::Set(kFloat, kImpossible);
  size_t count = 0;
  for (size_t begin = 0; begin < from.values.size(); begin += kLogitsBlock) {
    const float* block = BlockOf(from.values, begin, buffer);
    for (size_t i = 0; i < kLogitsBlock; i += NumLanes()) {
      const FloatVec x = hn::LoadU(kFloat, block + i);
      const IntVec places = hn::Iota(kInt, static_cast<int32_t>(begin + i));
      const auto is_wanted = hn::And(hn::Gt(x, impossible), is_inside(x, places));
      if (hn::AllFalse(kFloat, is_wanted)) continue;
      hn::StoreU(hn::Compress(x, is_wanted), kFloat, to.values.data() + count);
      hn::StoreU(hn::Compress(places, hn::RebindMask(kInt, is_wanted)), kInt, to.ids.data() + count);
      count += hn::CountTrue(kFloat, is_wanted);
    }
  }
  to.count = count;
  if (from.ids.empty()) return;
  for (size_t i = 0; i < count; ++i) to.ids[i] = from.ids[to.ids[i]];
}

void CollectBucket(const TokenView& from, const Division& division, const BucketRange& range, Candidates& to) {
  const FloatVec begins = hn::Set(kFloat, range.begin), ends = hn::Set(kFloat, range.end);
  Collect(from, to, [&](FloatVec x, IntVec) HWY_ATTR {
    const FloatVec place = PlaceOf(x, division);
    return hn::And(hn::Ge(place, begins), hn::Lt(place, ends));
  });
}

void CollectKept(std::span<const float> row, const RankedToken& last, Candidates& to) {
  const FloatVec value = hn::Set(kFloat, last.value);
  const IntVec end = hn::Set(kInt, last.id + 1);
  Collect({row, {}}, to, [&](FloatVec x, IntVec places) HWY_ATTR {
    const auto is_tie = hn::And(hn::Eq(x, value), hn::RebindMask(kFloat, hn::Lt(places, end)));
    return hn::Or(hn::Gt(x, value), is_tie);
  });
}

// At least one value, none of them -inf.
Extent FindExtent(std::span<const float> values) {
  FloatVec least = hn::Set(kFloat, values[0]), largest = least;
  size_t i = 0;
  for (; i + NumLanes() <= values.size(); i += NumLanes()) {
    const FloatVec x = hn::LoadU(kFloat, values.data() + i);
    least = hn::Min(least, x);
    largest = hn::Max(largest, x);
  }
  Extent extent{hn::GetLane(hn::MinOfLanes(kFloat, least)), hn::GetLane(hn::MaxOfLanes(kFloat, largest))};
  for (; i < values.size(); ++i) extent = {std::min(extent.min, values[i]), std::max(extent.max, values[i])};
  return extent;
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {

HWY_EXPORT(Deal);
HWY_EXPORT(CollectBucket);
HWY_EXPORT(CollectKept);
HWY_EXPORT(FindExtent);

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

struct Scratch {
  BucketCopies copies;
  Candidates kept;
  Candidates candidates[2];  // what a round reads, and what it writes
  std::vector<float> sample;
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

Division DivideBetween(float low, float high) {
  const float scale = static_cast<float>(kNumBuckets) / (high - low);
  return {low, std::clamp(scale, std::numeric_limits<float>::min(), std::numeric_limits<float>::max())};
}

BucketRange RangeOf(size_t bucket) {
  return {bucket == 0 ? -kInfinity : static_cast<float>(bucket),
          bucket == kNumBuckets - 1 ? kInfinity : static_cast<float>(bucket + 1)};
}

Buckets DealAll(std::span<const float> values, const Division& division, const std::optional<Weighing>& weighing) {
  BucketCopies& copies = ThreadScratch().copies;
  for (auto& copy : copies) copy.fill(0);
  HWY_DYNAMIC_DISPATCH(Deal)(values, division, weighing, copies);
  Buckets buckets;
  for (size_t i = 0; i < kNumBuckets; ++i) buckets[i] = (copies[0][i] + copies[1][i]) + (copies[2][i] + copies[3][i]);
  return buckets;
}

double WeightOf(float value, const std::optional<Weighing>& weighing) {
  return weighing.has_value() ? std::exp(double{(value - weighing->max) * weighing->inverse_temperature}) : 1;
}

struct Search {
  TokenView tokens;
  std::optional<Weighing> weighing;
  double above = 0;  // summed before the tokens in question
  double target = 0;
};

// Goes down to the bucket in which the target is reached; where rounding hides it, to the last that has anything.
size_t Descend(const Buckets& buckets, Search& search) {
  size_t found = kNumBuckets - 1;
  double above_found = search.above, sum = search.above;
  for (size_t i = kNumBuckets; i-- > 0;) {
    if (buckets[i] == 0) continue;
    found = i;
    above_found = sum;
    sum += buckets[i];
    if (sum >= search.target) break;
  }
  search.above = above_found;
  return found;
}

RankedToken FindAmongEqual(const Search& search) {
  const TokenView& tokens = search.tokens;
  const double needed = (search.target - search.above) / WeightOf(tokens.values[0], search.weighing);
  const auto last = static_cast<double>(tokens.values.size() - 1);
  const auto place = static_cast<size_t>(std::clamp(std::ceil(needed) - 1, 0.0, last));
  return {tokens.values[place], tokens.ids[place]};
}

RankedToken FindBySorting(const Search& search) {
  std::vector<RankedToken> tokens(search.tokens.values.size());
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = {search.tokens.values[i], search.tokens.ids[i]};
  std::sort(tokens.begin(), tokens.end());
  size_t last = 0;
  double sum = search.above + WeightOf(tokens[0].value, search.weighing);
  while (last + 1 < tokens.size() && sum < search.target) sum += WeightOf(tokens[++last].value, search.weighing);
  return tokens[last];
}

// `buckets` is how the tokens were dealt by `division`.
RankedToken Finish(Search search, Division division, Buckets buckets) {
  constexpr size_t kFewTokens = 48;
  constexpr int kMaxRounds = 8;  // values hundreds of binades apart could go on
  Scratch& scratch = ThreadScratch();
  for (int round = 0;; ++round) {
    const size_t bucket = Descend(buckets, search);
    Candidates& inside = scratch.candidates[round % 2];
    HWY_DYNAMIC_DISPATCH(CollectBucket)(search.tokens, division, RangeOf(bucket), inside);
    search.tokens = inside.view();
    const Extent extent = HWY_DYNAMIC_DISPATCH(FindExtent)(search.tokens.values);
    if (extent.min == extent.max) return FindAmongEqual(search);
    if (inside.count <= kFewTokens || round == kMaxRounds) return FindBySorting(search);
    division = DivideBetween(extent.min, extent.max);
    buckets = DealAll(search.tokens.values, division, search.weighing);
  }
}

// Values between which the count-th largest is likely to be, by a sample.
Extent GuessExtent(std::span<const float> row, size_t count) {
  constexpr size_t kSampleSize = 512;
  constexpr double kMargin = 40;  // of places in the sample, whose standard deviation is at most 12
  std::vector<float>& sample = ThreadScratch().sample;
  sample.clear();
  const size_t stride = std::max<size_t>(row.size() / kSampleSize, 1);
  for (size_t id = 0; id < row.size(); id += stride) sample.push_back(std::max(row[id], kLowest));
  const auto last = static_cast<double>(sample.size() - 1);
  const double place = static_cast<double>(count) / static_cast<double>(stride);
  const auto value_at = [&](double at) {
    const auto nth = sample.begin() + static_cast<ptrdiff_t>(std::clamp(at, 0.0, last));
    std::nth_element(sample.begin(), nth, sample.end(), std::greater<>());
    return *nth;
  };
  const float high = value_at(place - kMargin), low = value_at(place + kMargin);
  return {std::max(std::nextafter(low, -kInfinity), kLowest), std::nextafter(high, kInfinity)};
}

}  // namespace

std::optional<RankedToken> FindNth(std::span<const float> row, size_t count) {
  const Extent extent = GuessExtent(row, count);
  const Division division = DivideBetween(extent.min, extent.max);
  const Buckets buckets = DealAll(row, division, std::nullopt);
  double total = 0;
  for (const double bucket : buckets) total += bucket;
  if (total < static_cast<double>(count)) return std::nullopt;
  return Finish({.tokens = {row, {}}, .target = static_cast<double>(count)}, division, buckets);
}

TokenView CollectUpTo(std::span<const float> row, const RankedToken& last) {
  Candidates& kept = ThreadScratch().kept;
  HWY_DYNAMIC_DISPATCH(CollectKept)(row, last, kept);
  return kept.view();
}

RankedToken FindShare(const FindShareArgs& args) {
  const Division division = DivideBetween(args.low, args.weighing.max);
  const Buckets buckets = DealAll(args.tokens.values, division, args.weighing);
  double total = 0;
  for (const double bucket : buckets) total += bucket;
  return Finish({.tokens = args.tokens, .weighing = args.weighing, .target = args.share * total}, division, buckets);
}

}  // namespace foretoken::kernels::cpu
#endif  // HWY_ONCE
