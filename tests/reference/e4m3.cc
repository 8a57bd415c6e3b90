// SPDX-License-Identifier: Apache-2.0
#include "tests/reference/e4m3.h"

#include <algorithm>
#include <cmath>

namespace foretoken::reference {

double NearestE4m3(double value) {
  double nearest = 0;
  for (int code = 0; code < 0x7f; ++code) {
    const int exponent = code / 8, mantissa = code % 8;
    const double candidate = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    const double distance = std::abs(candidate - std::abs(value)), best = std::abs(nearest - std::abs(value));
    if (distance < best || (distance == best && code % 2 == 0)) nearest = candidate;
  }
  return std::copysign(nearest, value);
}

E4m3Row QuantizeE4m3(std::span<const float> row) {
  E4m3Row result;
  float largest = 0;
  for (const float value : row) largest = std::max(largest, std::abs(value));
  result.scale = largest / 448;
  for (const float value : row) {
    result.codes.push_back(largest == 0 ? 0 : static_cast<float>(NearestE4m3(value / result.scale)));
  }
  return result;
}

}  // namespace foretoken::reference
