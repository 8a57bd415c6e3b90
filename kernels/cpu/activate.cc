// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/activate.h"

#include <cmath>

#include "kernels/check.h"
#include "kernels/cpu/base/parallel_rows.h"

namespace foretoken::kernels::cpu {
namespace {

// Scalar: the op runs on few rows, beside matrix products over the same rows.
float Activated(Activation activation, float x) {
  if (activation == Activation::kGelu) return 0.5f * x * (1.0f + std::erf(x * 0.70710678f));
  if (activation == Activation::kGeluTanh)
    return x / (1.0f + std::exp(std::fmin(-x * (1.0f + 0.044715f * x * x) * 1.5957691f, 88.0f)));
  // Above 88 the exponential would overflow, and the quotient is below 1e-36.
  if (activation == Activation::kGeluQuick) return x / (1.0f + std::exp(std::fmin(-1.702f * x, 88.0f)));
  const float numerator = activation == Activation::kSigmoid ? 1.0f : x;
  return numerator / (1.0f + std::exp(std::fmin(-x, 88.0f)));
}

}  // namespace

void Activate(const ActivateArgs& args, ThreadPool& pool) {
  const int64_t num_columns = args.x.shape[1];
  const bool is_f32 = args.out.dtype == DType::kF32;
  FT_CHECK(args.x.dtype == DType::kF32 && args.x.shape == args.out.shape);
  FT_CHECK(is_f32 || (args.out.dtype == DType::kBF16 && args.mode == OutputMode::kStore));
  ParallelForRows(args.x.shape[0], num_columns, pool, [&](int64_t row) {
    for (int64_t c = 0; c < num_columns; ++c) {
      const int64_t i = row * num_columns + c;
      const float x = args.x.as<float>()[i] + (args.bias != nullptr ? args.bias[c] : 0.0f);
      const float y = Activated(args.activation, x);
      if (!is_f32) {
        args.out.as<uint16_t>()[i] = Bf16FromFloat(y);
      } else if (args.mode == OutputMode::kAdd) {
        args.out.as<float>()[i] += y;
      } else {
        args.out.as<float>()[i] = y;
      }
    }
  });
}

}  // namespace foretoken::kernels::cpu
