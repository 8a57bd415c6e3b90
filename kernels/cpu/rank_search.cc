// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/rank_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/check.h"

namespace foretoken::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

// Weights of tokens in question, as the search stands.
struct Search {
  TokenView tokens;
  double above = 0;  // weight before all of them
  double total = 0;  // their own
  double target = 0;
};

struct Scratch {
  std::vector<RankedToken> few;
  std::array<TokenBuffer, 2> buffers;  // what a round reads, and what it writes
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

float WeightAt(const TokenView& tokens, size_t place) { return tokens.weights.empty() ? 1 : tokens.weights[place]; }

int32_t IdAt(const TokenView& tokens, size_t place) {
  return tokens.ids.empty() ? static_cast<int32_t>(place) : tokens.ids[place];
}

// Puts every stride-th token in order; their ids are places in `tokens`.
void SortEvery(const TokenView& tokens, size_t stride, std::vector<RankedToken>& sorted) {
  sorted.clear();
  for (size_t place = 0; place < tokens.values.size(); place += stride) {
    if (tokens.values[place] >= kLowest) sorted.push_back({tokens.values[place], static_cast<int32_t>(place)});
  }
  std::sort(sorted.begin(), sorted.end());
}

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
  constexpr double kMargin = 3;  // in deviations
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

// The range that likely holds the end. Sums from the heaviest token down and from the lightest up both tell, and the
// one that varies less decides: whether a sample has met the few heaviest tokens is chance.
ValueRange GuessRange(const Search& search, size_t stride, std::span<const RankedToken> sample) {
  if (sample.empty()) return {-kInfinity, kInfinity};
  const size_t size = sample.size();
  const auto weight_of = [&](size_t i) {
    return static_cast<double>(stride) * WeightAt(search.tokens, static_cast<size_t>(sample[i].id));
  };
  const auto value_at = [&](std::optional<size_t> i, float otherwise) { return i ? sample[*i].value : otherwise; };
  const auto value_up = [&](std::optional<size_t> i, float otherwise) {
    return i ? sample[size - 1 - *i].value : otherwise;
  };
  const double needed = search.target - search.above;
  const Crossing down = FindCrossing(size, needed, weight_of);
  const Crossing up = FindCrossing(size, search.total - needed, [&](size_t i) { return weight_of(size - 1 - i); });
  if (down.deviation < up.deviation) return {value_at(down.after, -kInfinity), value_at(down.before, kInfinity)};
  return {value_up(up.before, -kInfinity), value_up(up.after, kInfinity)};
}

// Sorts the tokens in question and walks them.
RankedToken FindBySorting(const Search& search) {
  std::vector<RankedToken>& order = ThreadScratch().few;
  SortEvery(search.tokens, 1, order);
  size_t last = 0;
  double sum = search.above;
  const auto add = [&](const RankedToken& token) { sum += WeightAt(search.tokens, static_cast<size_t>(token.id)); };
  for (add(order[0]); last + 1 < order.size() && sum < search.target; add(order[last])) ++last;
  return {order[last].value, IdAt(search.tokens, static_cast<size_t>(order[last].id))};
}

RankedToken FindAmongEqual(const Search& search) {
  const TokenView& tokens = search.tokens;
  const double needed = (search.target - search.above) / WeightAt(tokens, 0);
  const auto last = static_cast<double>(tokens.values.size() - 1);
  const auto place = static_cast<size_t>(std::clamp(std::ceil(needed) - 1, 0.0, last));
  return {tokens.values[place], IdAt(tokens, place)};
}

RankedToken LastOf(const TokenView& tokens) {
  std::optional<size_t> last;
  for (size_t place = 0; place < tokens.values.size(); ++place) {
    if (tokens.values[place] < kLowest) continue;
    if (!last.has_value() || tokens.values[place] <= tokens.values[*last]) last = place;
  }
  FT_CHECK(last.has_value());
  return {tokens.values[*last], IdAt(tokens, *last)};
}

// Splits at `range` and goes on with the part that holds the end. Returns false where rounding, or too few tokens above
// -inf, leave nothing to go on with: the end is the last token.
bool Narrow(const ValueRange& range, TokenBuffer& buffer, Search& search) {
  const SplitSums sums = Split(search.tokens, range, buffer);
  const double above_inside = search.above + sums.above, below_inside = above_inside + sums.inside;
  if (above_inside >= search.target) {
    Split(search.tokens, {std::nextafter(range.high, kInfinity), kInfinity}, buffer);
    search.total = sums.above;
  } else if (below_inside >= search.target) {
    search.above = above_inside;
    search.total = sums.inside;
  } else {
    const ValueRange below = {-kInfinity, std::nextafter(std::max(range.low, kLowest), -kInfinity)};
    Split(search.tokens, below, buffer);
    search.above = below_inside;
    search.total -= sums.above + sums.inside;
  }
  if (buffer.count == 0) return false;
  search.tokens = buffer.view();
  return true;
}

}  // namespace

RankedToken FindByRank(const TokenView& tokens, double total, double target) {
  constexpr size_t kFewTokens = 128;
  Scratch& scratch = ThreadScratch();
  Search search{.tokens = tokens, .total = total, .target = target};
  bool is_guess_good = true;
  for (int round = 0;; ++round) {
    const size_t num_tokens = search.tokens.values.size();
    if (num_tokens <= kFewTokens) return FindBySorting(search);
    const auto sample_size = static_cast<size_t>(1.5 * std::sqrt(static_cast<double>(num_tokens)));
    const size_t stride = num_tokens / sample_size;
    SortEvery(search.tokens, stride, scratch.few);
    ValueRange range = GuessRange(search, stride, scratch.few);
    // A pivot always leaves fewer tokens, or equal ones.
    if (!is_guess_good && !scratch.few.empty()) range.low = range.high = scratch.few[scratch.few.size() / 2].value;
    if (!Narrow(range, scratch.buffers[round % 2], search)) return LastOf(search.tokens);
    const bool is_equal = search.tokens.values[0] == range.low && range.low == range.high;
    if (is_equal) return FindAmongEqual(search);
    is_guess_good = 2 * search.tokens.values.size() < num_tokens;
  }
}

}  // namespace foretoken::kernels::cpu
