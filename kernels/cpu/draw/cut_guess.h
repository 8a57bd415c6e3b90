// SPDX-License-Identifier: Apache-2.0
// Guesses the range of values in which a search (cut_search.h) ends. A guess may be wrong. The same tokens always give
// the same guess.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "kernels/cpu/draw/token_split.h"
#include "kernels/cpu/draw/value_histogram.h"

namespace foretoken::kernels::cpu {

// The state of a search: its end is the last token that has less than `target` of weight before it.
struct CutSearch {
  TokenView tokens;  // the end is among these
  std::optional<Softmax> weighing;
  double above = 0;  // weight before all of `tokens`
  double total = 0;  // weight of `tokens`
  double target = 0;

  double WeightOf(float value) const;
};

// Guesses from a sample of values, largest first. Each sampled value stands for `stride` tokens. Suits rows whose
// weights are similar. The sampling follows Floyd and Rivest's SELECT (1975).
ValueRange GuessBySample(const CutSearch& search, double stride, std::span<const float> sample);

// Every stride-th value inside the range, without -inf, largest first. Valid until the thread's next call.
std::span<const float> SampleValues(std::span<const float> values, size_t stride, const ValueRange& range);

// A few tokens may have most of the weight, and then a sample says little; a histogram says more. Its bins reach from
// the row's largest value down to a value below which the weight is negligible against the weight behind `share`.
ValueHistogram HistogramForShare(std::span<const float> row, const Softmax& softmax, double share);

// Guesses the range of the count-th token; unset if it is in the first bin, which has no lower end.
std::optional<ValueRange> GuessNth(std::span<const float> row, const ValueHistogram& histogram, size_t count);

// Guesses the range in which the tokens of the histogram reach `share` of their weight.
ValueRange GuessShare(std::span<const float> row, const ValueHistogram& histogram, const Softmax& softmax,
                      double share);

}  // namespace foretoken::kernels::cpu
