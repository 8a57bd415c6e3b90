// SPDX-License-Identifier: Apache-2.0
// Rounds values to integers with a common scale. Plain f32 arithmetic in a fixed order: every machine gets the same
// integers. If a value is not finite, every function returns the scale NaN and codes of zero, so that a broken model
// or a broken row shows in all that is multiplied with it.
#pragma once

#include <cstdint>

#include "kernels/kv_cache.h"

namespace foretoken::kernels {

// Symmetric, as compressed-tensors' writers do it: scale = max |value| / ((2^bits - 1) / 2), rounded to bf16, and
// code = round(value / scale), to nearest, ties to even, limited to the integers of `bits`, plus 2^(bits - 1).
// `bits` is 4 or 8. Values that are all zero, or nearly, get the scale 0. Returns the scale; the value of a code is
// scale * (code - 2^(bits - 1)).
float QuantizeGroup(const float* values, int64_t count, int bits, uint8_t* codes);

// The integers of a row's group: integer = round(value / scale) in [-127, 127], scale = max |value| / 127, in f32.
// Returns the scale; 0 if all values are zero, or nearly.
float QuantizeRowGroup(const float* values, int64_t count, int8_t* integers);

// A token's K or V of a head, for a cache of 8 bits: int8 as QuantizeRowGroup, e4m3 as
// code = e4m3(value * (448 / max |value|)), scale = max |value| / 448, in f32. Returns the scale; 0 if all values
// are zero, or nearly.
float QuantizeKv(KvCacheDtype dtype, const float* values, int64_t count, uint8_t* codes);

}  // namespace foretoken::kernels
