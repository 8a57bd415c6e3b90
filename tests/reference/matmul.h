// SPDX-License-Identifier: Apache-2.0
// The reference for matrix products, slow and obvious, in double precision.
#pragma once

#include <cstdint>
#include <vector>

namespace foretoken::reference {

struct MatMulResult {
  std::vector<double> sums;        // [T, N]
  std::vector<double> magnitudes;  // [T, N] the same sums over absolute values, the scale of rounding errors
};

struct MatMulInput {
  int64_t num_rows = 0;         // T
  int64_t num_outputs = 0;      // N
  int64_t num_inputs = 0;       // K
  std::vector<uint16_t> x;      // [T, K] bf16
  std::vector<float> weight;    // [N, K]
  std::vector<float> bias;      // [N], or empty
  std::vector<float> previous;  // [T, N] added, or empty
};

MatMulResult MatMul(const MatMulInput& input);

}  // namespace foretoken::reference
