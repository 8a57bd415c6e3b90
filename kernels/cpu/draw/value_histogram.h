// SPDX-License-Identifier: Apache-2.0
// How many tokens have about which value. A histogram only guides a search, so bins are cut where rounding cuts them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace foretoken::kernels::cpu {

inline constexpr size_t kNumBins = 1024;

// Bin i is for values around low + i * width; the first takes all below it too, the last all above.
struct ValueHistogram {
  float low = 0;
  float width = 1;
  std::array<uint32_t, kNumBins> counts = {};

  // Forgets all but the `count` largest.
  void KeepTop(size_t count);
};

// Bins from `low`, finite, to the largest value, `max`, which is the middle of the last bin.
ValueHistogram CountValues(std::span<const float> values, float low, float max);

}  // namespace foretoken::kernels::cpu
