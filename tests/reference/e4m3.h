// SPDX-License-Identifier: Apache-2.0
// FP8 e4m3, slow and obvious.
#pragma once

#include <span>
#include <vector>

namespace foretoken::reference {

// Of all finite codes the one whose value is nearest; of two, the even one.
double NearestE4m3(double value);

// A row as the values of codes, times a scale: the largest magnitude over 448.
struct E4m3Row {
  float scale = 0;
  std::vector<float> codes;
};

E4m3Row QuantizeE4m3(std::span<const float> row);

}  // namespace foretoken::reference
