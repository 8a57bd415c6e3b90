// SPDX-License-Identifier: Apache-2.0
// Other kernels for the matrix product of one row. They read the same weights in the same tasks with the same
// instruction (vdpbf16ps) as kernels/cpu/matmul/matmul_avx512_bf16.cc. Most of them ignore E1: they sum in any fast
// order, even if it depends on the row count or the number of threads. Their gain over the serving kernel is the cost
// of E1.
#pragma once

#include <span>
#include <string>

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::bench {

struct MatMulVariant {
  std::string name;
  bool keeps_e1 = false;
  // One row of x, a multiple of 32 inputs, no bias, OutputMode::kStore.
  void (*run)(const kernels::MatMulArgs& args, kernels::cpu::ThreadPool& pool) = nullptr;
};

// Empty unless kernels::cpu::SupportedIsas() has kAvx512Bf16.
std::span<const MatMulVariant> MatMulVariants();

}  // namespace foretoken::bench
