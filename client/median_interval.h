// SPDX-License-Identifier: Apache-2.0
// A median and how sure it is: the interval between two order statistics, which needs no assumption about how the
// values are distributed but that they are independent.
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
  // How likely such an interval holds the true median: at least 0.95, or what fewer than six values give at most.
  double confidence = 0;
};

// At least one value, in any order. The narrowest symmetric pair of order statistics that reaches 0.95.
MedianWithInterval MedianInterval(std::vector<double> values);

}  // namespace foretoken::client
