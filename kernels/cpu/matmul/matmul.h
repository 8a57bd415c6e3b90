// SPDX-License-Identifier: Apache-2.0
// The whole matrix product out = x weight^T: packs x, cuts the product into tiles, and runs them on all threads.
//
// Few rows are bound by reading the weight once. So each thread streams whole panels, and multiplies each with all
// rows. Many rows are bound by arithmetic. A range of inputs of a few panels stays in the L2 cache while all blocks of
// rows use it.
#pragma once

#include "kernels/cpu/base/isa.h"
#include "kernels/cpu/base/pages.h"
#include "kernels/cpu/base/thread_pool.h"
#include "kernels/cpu/matmul/matmul_kernel.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

// Returns the kernel of an isa for bf16, or for integers. The target of a Highway kernel depends on the pin that lives
// during the call.
const MatMulKernel& KernelOf(Isa isa, const IntegerPanels* integers = nullptr);

// `scratch` holds the packed x. It grows as needed, and the caller keeps it for the next call.
void MatMul(const MatMulArgs& args, Isa isa, Pages& scratch, ThreadPool& pool);
// By a kernel of the caller's choice, of a weight that is no stack.
void MatMul(const MatMulArgs& args, const MatMulKernel& kernel, Pages& scratch, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
