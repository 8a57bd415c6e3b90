// SPDX-License-Identifier: Apache-2.0
// Counts the tokens of a row by approximate value. A histogram only guides a search, so rounding may decide the edges
// of bins.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace foretoken::kernels::cpu {

inline constexpr size_t kNumBins = 1024;

// Bin i holds values around low + i * width. The first bin also holds all values below, the last all above.
struct ValueHistogram {
  float low = 0;
  float width = 1;
  std::array<uint32_t, kNumBins> counts = {};

  // Drops all but the `count` largest.
  void KeepTop(size_t count);
};

// Bins reach from `low`, which is finite, to the largest value, `max`, which is the middle of the last bin.
ValueHistogram CountValues(std::span<const float> values, float low, float max);

}  // namespace foretoken::kernels::cpu
