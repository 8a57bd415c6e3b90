// SPDX-License-Identifier: Apache-2.0
// Guesses the values between which a search by rank ends. A guess may be wrong; the same tokens give the same guess.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "kernels/cpu/draw/token_split.h"
#include "kernels/cpu/draw/value_histogram.h"

namespace foretoken::kernels::cpu {

// The search as it stands: the end is the last token that has less than `target` of weight before it.
struct RankSearch {
  TokenView tokens;  // among which it is
  std::optional<Softmax> weighing;
  double above = 0;  // weight before all of them
  double total = 0;  // their own
  double target = 0;

  double WeightOf(float value) const;
};

// From a sample of values, largest first, each of which stands for `stride` tokens. Fits weights that are much alike;
// the sampling is that of Floyd and Rivest's SELECT (1975).
ValueRange GuessBySample(const RankSearch& search, double stride, std::span<const float> sample);

// Every stride-th value inside the range, without -inf, largest first. Valid until the thread's next call.
std::span<const float> SampleValues(std::span<const float> values, size_t stride, const ValueRange& range);

// A sample says little about weights, most of which a few tokens can have; a histogram does. Its bins reach from the
// row's largest value down to where all that is left weighs next to nothing beside what lies behind `share`.
ValueHistogram HistogramForShare(std::span<const float> row, const Softmax& softmax, double share);

// Where the count-th token is; nothing where that is in the first bin, which has no lower end.
std::optional<ValueRange> GuessNth(std::span<const float> row, const ValueHistogram& histogram, size_t count);

// Where the tokens in the histogram have `share` of their weight.
ValueRange GuessShare(std::span<const float> row, const ValueHistogram& histogram, const Softmax& softmax,
                      double share);

}  // namespace foretoken::kernels::cpu
