// SPDX-License-Identifier: Apache-2.0
#include "tests/reference/matmul.h"

#include <cmath>

#include "kernels/dtype.h"

namespace foretoken::reference {

MatMulResult MatMul(const MatMulInput& input) {
  MatMulResult result;
  for (int64_t t = 0; t < input.num_rows; ++t) {
    for (int64_t n = 0; n < input.num_outputs; ++n) {
      double sum = 0;
      double magnitude = 0;
      const auto add = [&](double value) {
        sum += value;
        magnitude += std::abs(value);
      };
      for (int64_t k = 0; k < input.num_inputs; ++k) {
        const double x = kernels::FloatFromBf16(input.x[t * input.num_inputs + k]);
        add(x * double{input.weight[n * input.num_inputs + k]});
      }
      if (!input.bias.empty()) add(input.bias[n]);
      if (!input.previous.empty()) add(input.previous[t * input.num_outputs + n]);
      result.sums.push_back(sum);
      result.magnitudes.push_back(magnitude);
    }
  }
  return result;
}

}  // namespace foretoken::reference
