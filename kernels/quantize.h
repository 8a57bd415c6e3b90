// SPDX-License-Identifier: Apache-2.0
// Rounds values to integers with a common scale. Plain f32 arithmetic in a fixed order: every machine gets the same
// integers. If a value is not finite, every function returns the scale NaN and codes of zero, so that a broken model
// or a broken row shows in all that is multiplied with it.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/kv_cache.h"

namespace foretoken::kernels {

// Values with a smaller scale become zeros: the scale's reciprocal may not be finite.
inline constexpr float kLeastScale = std::numeric_limits<float>::min();
inline constexpr float kMaxInt8 = 127;  // the largest integer of a row, and of K and V

// Symmetric, as compressed-tensors' writers do it: scale = max |value| / ((2^bits - 1) / 2), rounded to bf16, and
// code = round(value / scale), to nearest, ties to even, limited to the integers of `bits`, plus 2^(bits - 1).
// `bits` is 4 or 8. Values that are all zero, or nearly, get the scale 0. Returns the scale; the value of a code is
// scale * (code - 2^(bits - 1)).
float QuantizeGroup(const float* values, int64_t count, int bits, uint8_t* codes);

// The integers of a row's group: integer = round(value / scale) in [-127, 127], scale = max |value| / 127, in f32.
// Returns the scale; 0 if all values are zero, or nearly.
float QuantizeRowGroup(const float* values, int64_t count, int8_t* integers);

// The scale of codes up to `largest_code`, and what values are multiplied with before they are rounded. With a scale
// of 0 or NaN all codes are zero. `max_bits` are the bits of the largest magnitude: as integers they are in the order
// of the magnitudes, with an infinity above all finite ones, and a NaN above that.
struct Rounding {
  float scale = 0;
  float inverse = 0;
};
constexpr Rounding RoundingTo(float largest_code, uint32_t max_bits) {
  if (max_bits >= 0x7f800000u) return {.scale = std::numeric_limits<float>::quiet_NaN()};
  const float max = std::bit_cast<float>(max_bits), scale = max / largest_code;
  return scale < kLeastScale ? Rounding{} : Rounding{.scale = scale, .inverse = largest_code / max};
}

// A token's K or V of a head, for a cache of 8 bits: int8 as QuantizeRowGroup, e4m3 as
// code = e4m3(value * (448 / max |value|)), scale = max |value| / 448, in f32. Returns the scale; 0 if all values
// are zero, or nearly. A GPU does the same (rope_store_kv.cu).
float QuantizeKv(KvCacheDtype dtype, const float* values, int64_t count, uint8_t* codes);

}  // namespace foretoken::kernels
