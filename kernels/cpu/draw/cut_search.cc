// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/draw/cut_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/cpu/draw/cut_guess.h"

namespace foretoken::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

// A round writes one of these, and the next round reads it.
using Buffers = std::array<TokenBuffer, 2>;

Buffers& ThreadBuffers() {
  thread_local Buffers buffers;
  return buffers;
}

int32_t IdAt(const TokenView& tokens, size_t place) {
  return tokens.ids.empty() ? static_cast<int32_t>(place) : tokens.ids[place];
}

OrderedToken FindBySorting(const CutSearch& search) {
  thread_local std::vector<OrderedToken> order;
  order.clear();
  for (size_t place = 0; place < search.tokens.values.size(); ++place) {
    const float value = search.tokens.values[place];
    if (value >= kLowest) order.push_back({value, IdAt(search.tokens, place)});
  }
  std::sort(order.begin(), order.end());
  size_t last = 0;
  double sum = search.above + search.WeightOf(order[0].value);
  while (last + 1 < order.size() && sum < search.target) sum += search.WeightOf(order[++last].value);
  return order[last];
}

OrderedToken FindAmongEqual(const CutSearch& search) {
  const TokenView& tokens = search.tokens;
  const double needed = (search.target - search.above) / search.WeightOf(tokens.values[0]);
  const auto last = static_cast<double>(tokens.values.size() - 1);
  const auto place = static_cast<size_t>(std::clamp(std::ceil(needed) - 1, 0.0, last));
  return {tokens.values[place], IdAt(tokens, place)};
}

// The result if rounding, or too few tokens above -inf, put the target out of reach.
OrderedToken LastOf(const TokenView& tokens) {
  OrderedToken last = {kInfinity, 0};
  for (size_t place = 0; place < tokens.values.size(); ++place) {
    const float value = tokens.values[place];
    if (value >= kLowest && value <= last.value) last = {value, IdAt(tokens, place)};
  }
  return last;
}

// Continues with the part that holds the end, given the sums of `split`. `buffer` has the tokens inside the range.
// Returns false if no part holds the end.
bool Follow(const SplitArgs& split, const SplitSums& sums, TokenBuffer& buffer, CutSearch& search) {
  SplitArgs side = split;
  if (search.above + sums.above >= search.target) {
    search.total = sums.above;
    side.range = {std::nextafter(split.range.high, kInfinity), kInfinity};
    Split(side, buffer);
  } else if (search.above + sums.above + sums.inside >= search.target) {
    search.above += sums.above;
    search.total = sums.inside;
  } else {
    search.above += sums.above + sums.inside;
    search.total = sums.below;
    side.range = {-kInfinity, std::nextafter(std::max(split.range.low, kLowest), -kInfinity)};
    Split(side, buffer);
  }
  if (buffer.count == 0) return false;
  search.tokens = buffer.view();
  return true;
}

bool IsOneValue(const CutSearch& search, const ValueRange& range) {
  return range.low == range.high && search.tokens.values[0] == range.low;
}

// Runs rounds until it finds the end. `next` is the buffer that does not hold the search's tokens.
OrderedToken Finish(CutSearch search, size_t next, bool is_guess_good) {
  constexpr size_t kFewTokens = 128;
  Buffers& buffers = ThreadBuffers();
  for (;; next = 1 - next) {
    const size_t num_tokens = search.tokens.values.size();
    if (num_tokens <= kFewTokens) return FindBySorting(search);
    const size_t stride = num_tokens / static_cast<size_t>(1.5 * std::sqrt(static_cast<double>(num_tokens)));
    const std::span<const float> sample = SampleValues(search.tokens.values, stride, {});
    ValueRange range;
    if (!sample.empty()) {
      // A split at one value leaves fewer tokens, or only equal ones.
      const float pivot = sample[sample.size() / 2];
      range = is_guess_good ? GuessBySample(search, static_cast<double>(stride), sample) : ValueRange{pivot, pivot};
    }
    const SplitArgs split{.tokens = search.tokens, .weighing = search.weighing, .range = range};
    const SplitSums sums = Split(split, buffers[next]);
    if (!Follow(split, sums, buffers[next], search)) return LastOf(search.tokens);
    if (IsOneValue(search, range)) return FindAmongEqual(search);
    is_guess_good = 2 * search.tokens.values.size() < num_tokens;
  }
}

// Runs the first round, whose guess is given, and then the others. A share becomes a target once the row's weight is
// summed.
OrderedToken SplitAndFinish(const SplitArgs& split, CutSearch search, std::optional<double> share) {
  TokenBuffer& inside = ThreadBuffers()[0];
  const SplitSums sums = Split(split, inside);
  if (share.has_value()) {
    constexpr double kAnything = std::numeric_limits<double>::min();  // above 0, because the first token is kept
                                                                      // whatever the share
    search.target = std::max(*share * (sums.above + sums.inside + sums.below), kAnything);
  }
  if (!Follow(split, sums, inside, search)) return LastOf(split.tokens);
  if (IsOneValue(search, split.range)) return FindAmongEqual(search);
  return Finish(search, 1, 2 * inside.count < split.tokens.values.size());
}

OrderedToken FindNthNear(std::span<const float> row, size_t count, const ValueRange& range) {
  const CutSearch search{.tokens = {row, {}}, .target = static_cast<double>(count)};
  return SplitAndFinish({.tokens = search.tokens, .range = range}, search, std::nullopt);
}

}  // namespace

OrderedToken FindNth(std::span<const float> row, size_t count) {
  const auto total = static_cast<double>(row.size());
  return Finish({.tokens = {row, {}}, .total = total, .target = static_cast<double>(count)}, 0, true);
}

OrderedToken FindShare(std::span<const float> row, std::optional<size_t> count, const Softmax& softmax, double share) {
  ValueHistogram histogram = HistogramForShare(row, softmax, share);
  OrderedToken last = kNoneBehind;
  if (count.has_value()) {
    const std::optional<ValueRange> near = GuessNth(row, histogram, *count);
    last = near.has_value() ? FindNthNear(row, *count, *near) : FindNth(row, *count);
    histogram.KeepTop(*count);
  }
  const SplitArgs split{
      .tokens = {row, {}}, .weighing = softmax, .last = last, .range = GuessShare(row, histogram, softmax, share)};
  return std::min(last, SplitAndFinish(split, {.tokens = split.tokens, .weighing = softmax}, share));
}

}  // namespace foretoken::kernels::cpu
