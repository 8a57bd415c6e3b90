// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/rank_guess.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/value_histogram.h"

namespace foretoken::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr double kMargin = 3;  // in deviations

// Where a sum over the sample, taken from one of its ends, passes a target: the places, counted from that end, at
// which it surely has not yet, and surely has.
struct Crossing {
  std::optional<size_t> before;
  std::optional<size_t> after;
  double deviation = 0;  // of the sum at the target, as far as the sample shows it
};

// `weight_at(i)` is the weight that the i-th of the sample, counted from that end, stands for.
template <typename WeightOf>
Crossing FindCrossing(size_t sample_size, double target, const WeightOf& weight_of) {
  double sum = 0, squares = 0;
  size_t middle = 0;
  for (; middle < sample_size && sum < target; ++middle) {
    sum += weight_of(middle);
    squares += weight_of(middle) * weight_of(middle);
  }
  Crossing crossing{.deviation = std::sqrt(squares)};
  double sum_after = sum;
  for (size_t i = middle; i < sample_size && !crossing.after.has_value(); ++i) {
    sum_after += weight_of(i);
    if (sum_after >= target + kMargin * crossing.deviation) crossing.after = i;
  }
  for (size_t i = middle; i-- > 0 && !crossing.before.has_value();) {
    if (sum < target - kMargin * crossing.deviation) crossing.before = i;
    sum -= weight_of(i);
  }
  return crossing;
}

// What a histogram says about weights: each bin's, as if its tokens stood in the middle, and how far that may be off.
struct BinWeights {
  std::array<double, kNumBins> weights = {};
  double total = 0;
  double deviation = 0;
};

BinWeights WeighBins(const ValueHistogram& histogram, const Softmax& softmax) {
  BinWeights bins;
  const double step = double{histogram.width} / softmax.temperature;
  double squares = 0;
  for (size_t bin = 0; bin < kNumBins; ++bin) {
    if (histogram.counts[bin] == 0) continue;
    bins.weights[bin] = histogram.counts[bin] * std::exp(-step * static_cast<double>(kNumBins - 1 - bin));
    bins.total += bins.weights[bin];
    squares += bins.weights[bin] * bins.weights[bin];
  }
  bins.deviation = std::sqrt(squares / 12) * step;  // of one that is anywhere in its bin
  return bins;
}

// The bins, first and last, that hold the end; the weight above them and their own.
struct BinRange {
  size_t first = 0;
  size_t last = kNumBins - 1;
  double above = 0;
  double inside = 0;
};

BinRange FindBins(const BinWeights& bins, double target) {
  const double margin = kMargin * bins.deviation;
  BinRange range;
  size_t bin = kNumBins - 1;
  for (; bin > 0 && range.above + bins.weights[bin] < target - margin; --bin) range.above += bins.weights[bin];
  range.first = range.last = bin;
  range.inside = bins.weights[bin];
  while (range.first > 0 && range.above + range.inside < target + margin) range.inside += bins.weights[--range.first];
  return range;
}

ValueRange ValuesOf(const ValueHistogram& histogram, const BinRange& bins) {
  const auto edge = [&](double place) { return static_cast<float>(histogram.low + place * histogram.width); };
  return {bins.first == 0 ? -kInfinity : edge(static_cast<double>(bins.first) - 0.5),
          bins.last == kNumBins - 1 ? kInfinity : edge(static_cast<double>(bins.last) + 0.5)};
}

size_t CountTokens(const ValueHistogram& histogram, const BinRange& bins) {
  size_t count = 0;
  for (size_t bin = bins.first; bin <= bins.last; ++bin) count += histogram.counts[bin];
  return count;
}

}  // namespace

double RankSearch::WeightOf(float value) const {
  return weighing.has_value() ? std::exp((double{value} - weighing->max) / weighing->temperature) : 1;
}

std::span<const RankedToken> SampleTokens(const TokenView& tokens, size_t stride, const ValueRange& range) {
  thread_local std::vector<RankedToken> sample;
  sample.clear();
  for (size_t place = 0; place < tokens.values.size(); place += stride) {
    const float value = tokens.values[place];
    if (value >= std::max(range.low, kLowest) && value <= range.high) {
      sample.push_back({value, tokens.ids.empty() ? static_cast<int32_t>(place) : tokens.ids[place]});
    }
  }
  std::sort(sample.begin(), sample.end());
  return sample;
}

// Sums from the heaviest token down and from the lightest up both tell; the one that varies less decides.
ValueRange GuessBySample(const RankSearch& search, double stride, std::span<const RankedToken> sample) {
  const size_t last = sample.size() - 1;
  const auto weight_at = [&](size_t i) { return stride * search.WeightOf(sample[i].value); };
  const double needed = search.target - search.above;
  const Crossing down = FindCrossing(sample.size(), needed, weight_at);
  const Crossing up = FindCrossing(sample.size(), search.total - needed, [&](size_t i) { return weight_at(last - i); });
  if (down.deviation < up.deviation) {
    return {.low = down.after ? sample[*down.after].value : -kInfinity,
            .high = down.before ? sample[*down.before].value : kInfinity};
  }
  return {.low = up.before ? sample[last - *up.before].value : -kInfinity,
          .high = up.after ? sample[last - *up.after].value : kInfinity};
}

ValueRange GuessShare(std::span<const float> row, const RankedToken& last, const Softmax& softmax, double share) {
  // The largest token weighs 1, so all tokens below this weigh a twentieth of what lies behind the end, together.
  const double least_log_weight = std::log((1 - share) / (20 * static_cast<double>(row.size())));
  const double low = std::max(softmax.max + least_log_weight * softmax.temperature, double{kLowest});
  const ValueHistogram histogram = CountValues(row, std::max(static_cast<float>(low), last.value), softmax.max);
  const BinWeights weights = WeighBins(histogram, softmax);
  const BinRange bins = FindBins(weights, share * weights.total);
  const ValueRange range = ValuesOf(histogram, bins);
  if (CountTokens(histogram, bins) < row.size() / 16) return range;
  // Many tokens of nearly one weight: here a sample helps, most of all where they are equal.
  const size_t stride = row.size() / 1024 + 1;
  const std::span<const RankedToken> sample = SampleTokens({row, {}}, stride, range);
  if (sample.empty()) return range;
  const RankSearch search{
      .weighing = softmax, .above = bins.above, .total = bins.inside, .target = share * weights.total};
  const ValueRange inner = GuessBySample(search, static_cast<double>(stride), sample);
  return {std::max(range.low, inner.low), std::min(range.high, inner.high)};
}

}  // namespace foretoken::kernels::cpu
