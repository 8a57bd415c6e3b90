// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/recurrent_cell.h"

#include <cmath>

#include "kernels/check.h"
#include "kernels/cpu/base/parallel_rows.h"

namespace foretoken::kernels::cpu {

void RecurrentCell(const RecurrentCellArgs& args, ThreadPool& pool) {
  const int64_t num_columns = args.state.shape[1];
  FT_CHECK(args.gates.dtype == DType::kF32 && args.state.dtype == DType::kF32 && args.out.dtype == DType::kBF16);
  FT_CHECK(args.gates.shape == Shape(args.state.shape[0], 3 * num_columns) && args.out.shape == args.state.shape);
  // Scalar: the op runs on few rows, beside matrix products over the same rows.
  ParallelForRows(args.state.shape[0], 3 * num_columns, pool, [&](int64_t row) {
    const float* const gates = args.gates.as<float>() + row * 3 * num_columns;
    float* const state = args.state.as<float>() + row * num_columns;
    uint16_t* const out = args.out.as<uint16_t>() + row * num_columns;
    for (int64_t c = 0; c < num_columns; ++c) {
      const float kept = 1.0f / (1.0f + std::exp(std::fmin(-gates[c], 88.0f)));  // above 88 it would overflow
      state[c] = kept * state[c] + (1.0f - kept) * std::tanh(gates[num_columns + c]);
      out[c] = Bf16FromFloat(std::tanh(gates[2 * num_columns + c]));
    }
  });
}

}  // namespace foretoken::kernels::cpu
