// SPDX-License-Identifier: Apache-2.0
// A median with a confidence interval between two order statistics. The interval needs independent values and assumes
// nothing about their distribution.
//
//   MedianInterval({0.97, 1.01, 1.02, 0.99, 1.00, 1.03}) -> median 1.005, [0.97, 1.03], 0.969
//
// Source: the number of values below the true median is binomial with chance 1/2.
#pragma once

#include <vector>

namespace foretoken::client {

struct MedianWithInterval {
  double median = 0;
  double low = 0;
  double high = 0;
  // How likely such an interval contains the true median: at least 0.95, or less with fewer than six values.
  double confidence = 0;
};

// Takes the narrowest symmetric pair of order statistics that reaches 0.95. There must be at least one value, in any
// order.
MedianWithInterval MedianInterval(std::vector<double> values);

}  // namespace foretoken::client
