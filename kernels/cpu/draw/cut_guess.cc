// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/draw/cut_guess.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cpu/draw/value_histogram.h"

namespace foretoken::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr double kMargin = 2.5;  // in deviations

// The place where a running sum over the sample passes a target. The sum starts at one end of the sample, and places
// are counted from that end. At `before` the sum is surely below the target, and at `after` it is surely above.
struct Crossing {
  std::optional<size_t> before;
  std::optional<size_t> after;
  double deviation = 0;  // the standard deviation of the sum at the target, as far as the sample shows it
};

// `weight_of(i)` is the weight for which the i-th sampled value stands, counted from the end where the sum starts.
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

// The weight of each bin, computed as if its tokens stood in the middle.
using BinWeights = std::array<double, kNumBins>;

BinWeights WeighBins(const ValueHistogram& histogram, double step) {
  BinWeights weights;
  for (size_t bin = 0; bin < kNumBins; ++bin) {
    const double weight = std::exp(-step * static_cast<double>(kNumBins - 1 - bin));
    weights[bin] = histogram.counts[bin] == 0 ? 0 : histogram.counts[bin] * weight;
  }
  weights[0] /= 2;  // the true weight is between 0 and twice this
  return weights;
}

// The error of (weight above - share * total) at the upper edge of `bin`, as a few standard deviations. Tokens are
// somewhere in their bins, and a bin is `step` wide in logarithms of weight.
double MarginAt(const BinWeights& weights, size_t bin, double share, double step) {
  double squares = 0;
  for (size_t i = 0; i < kNumBins; ++i) {
    const double part = (i > bin ? 1 - share : share) * weights[i];
    squares += part * part;
  }
  return kMargin * step * std::sqrt(squares / 12) + share * weights[0];
}

// A range of bins, first to last; the weight above them, and their own.
struct BinRange {
  size_t first = 0;
  size_t last = 0;
  double above = 0;
  double inside = 0;
};

BinRange FindBin(const BinWeights& weights, double target) {
  double above = 0;
  size_t bin = kNumBins - 1;
  for (; bin > 0 && above + weights[bin] < target; --bin) above += weights[bin];
  return {.first = bin, .last = bin, .above = above, .inside = weights[bin]};
}

// Adds neighbours as far as the margin reaches, but no more than `few` tokens, because more would cost more than a
// wrong guess.
void Widen(const ValueHistogram& histogram, const BinWeights& weights, double target, double margin, size_t few,
           BinRange& range) {
  size_t count = histogram.counts[range.first];
  const auto takes = [&](size_t bin) {
    if (count + histogram.counts[bin] > few) return false;
    count += histogram.counts[bin];
    range.inside += weights[bin];
    return true;
  };
  while (range.first > 0 && range.above + range.inside < target + margin && takes(range.first - 1)) --range.first;
  while (range.last < kNumBins - 1 && range.above >= target - margin && takes(range.last + 1)) {
    range.above -= weights[++range.last];
  }
}

ValueRange ValuesOf(const ValueHistogram& histogram, const BinRange& bins) {
  const auto edge = [&](double place) {
    return static_cast<float>(std::min(histogram.low + place * histogram.width, double{-kLowest}));
  };
  return {bins.first == 0 ? -kInfinity : edge(static_cast<double>(bins.first) - 0.5),
          bins.last == kNumBins - 1 ? kInfinity : edge(static_cast<double>(bins.last) + 0.5)};
}

size_t CountTokens(const ValueHistogram& histogram, const BinRange& bins) {
  size_t count = 0;
  for (size_t bin = bins.first; bin <= bins.last; ++bin) count += histogram.counts[bin];
  return count;
}

// Returns the range of values of the bins. If many tokens of nearly one weight are in them, it narrows the range by a
// sample of these tokens. This helps most where values are equal.
ValueRange Refine(std::span<const float> row, const ValueHistogram& histogram, const BinRange& bins,
                  const CutSearch& search) {
  const ValueRange range = ValuesOf(histogram, bins);
  if (CountTokens(histogram, bins) < row.size() / 16) return range;
  const size_t stride = row.size() / 512 + 1;
  const std::span<const float> sample = SampleValues(row, stride, range);
  if (sample.empty()) return range;
  const ValueRange inner = GuessBySample(search, static_cast<double>(stride), sample);
  return {std::max(range.low, inner.low), std::min(range.high, inner.high)};
}

}  // namespace

double CutSearch::WeightOf(float value) const {
  return weighing.has_value() ? std::exp((double{value} - weighing->max) / weighing->temperature) : 1;
}

std::span<const float> SampleValues(std::span<const float> values, size_t stride, const ValueRange& range) {
  thread_local std::vector<float> sample;
  sample.clear();
  const float low = std::max(range.low, kLowest);
  for (size_t place = 0; place < values.size(); place += stride) {
    if (values[place] >= low && values[place] <= range.high) sample.push_back(values[place]);
  }
  std::sort(sample.begin(), sample.end(), std::greater<>());
  return sample;
}

// A sum from the heaviest token down gives one range, and a sum from the lightest token up gives another. The result is
// the range of the sum that varies less.
ValueRange GuessBySample(const CutSearch& search, double stride, std::span<const float> sample) {
  const size_t last = sample.size() - 1;
  if (sample[0] == sample[last]) return {sample[0], sample[0]};
  const auto weight_at = [&](size_t i) { return stride * search.WeightOf(sample[i]); };
  const double needed = search.target - search.above;
  const Crossing down = FindCrossing(sample.size(), needed, weight_at);
  const Crossing up = FindCrossing(sample.size(), search.total - needed, [&](size_t i) { return weight_at(last - i); });
  if (down.deviation < up.deviation) {
    return {.low = down.after ? sample[*down.after] : -kInfinity,
            .high = down.before ? sample[*down.before] : kInfinity};
  }
  return {.low = up.before ? sample[last - *up.before] : -kInfinity,
          .high = up.after ? sample[last - *up.after] : kInfinity};
}

ValueHistogram HistogramForShare(std::span<const float> row, const Softmax& softmax, double share) {
  // The largest token weighs 1. So all tokens below this value together weigh at most a twentieth of the weight behind
  // the end.
  const double least_log_weight = std::log((1 - share) / (20 * static_cast<double>(row.size())));
  const double low = std::max(softmax.max + least_log_weight * softmax.temperature, double{kLowest});
  // A row of similar values has no value that low, so the bins begin near its least value. If all its values are equal,
  // bins must still have a width.
  float least = static_cast<float>(softmax.max - 1e-3 * softmax.temperature);
  for (size_t id = 0; id < row.size(); id += row.size() / 512 + 1) least = std::min(least, row[id]);
  return CountValues(row, std::max(least, static_cast<float>(low)), softmax.max);
}

std::optional<ValueRange> GuessNth(std::span<const float> row, const ValueHistogram& histogram, size_t count) {
  BinWeights counts;
  std::copy(histogram.counts.begin(), histogram.counts.end(), counts.begin());
  const auto target = static_cast<double>(count);
  const BinRange bin = FindBin(counts, target);
  if (bin.first == 0) return std::nullopt;
  return Refine(row, histogram, bin, {.above = bin.above, .total = bin.inside, .target = target});
}

ValueRange GuessShare(std::span<const float> row, const ValueHistogram& histogram, const Softmax& softmax,
                      double share) {
  const double step = double{histogram.width} / softmax.temperature;
  const BinWeights weights = WeighBins(histogram, step);
  const double target = share * std::accumulate(weights.begin(), weights.end(), 0.0);
  BinRange bins = FindBin(weights, target);
  Widen(histogram, weights, target, MarginAt(weights, bins.first, share, step), row.size() / 32, bins);
  const CutSearch search{.weighing = softmax, .above = bins.above, .total = bins.inside, .target = target};
  return Refine(row, histogram, bins, search);
}

}  // namespace foretoken::kernels::cpu
