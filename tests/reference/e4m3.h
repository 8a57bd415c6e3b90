// SPDX-License-Identifier: Apache-2.0
// The reference for FP8 e4m3, slow and obvious.
#pragma once

#include <span>
#include <vector>

namespace foretoken::reference {

// Returns the value of the nearest finite code. Ties go to the even code.
double NearestE4m3(double value);

// A row as values of codes times a scale. The scale is the row's largest magnitude divided by 448.
struct E4m3Row {
  float scale = 0;
  std::vector<float> codes;
};

E4m3Row QuantizeE4m3(std::span<const float> row);

}  // namespace foretoken::reference
