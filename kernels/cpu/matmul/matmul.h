// SPDX-License-Identifier: Apache-2.0
// The matrix product out = x weight^T, whole: packs x, cuts the product into tiles, runs them on all threads.
//
// Few rows are bound by reading the weight once; so each thread streams whole panels, and all rows ride on that stream.
// Many rows are bound by arithmetic: a range of inputs of a few panels stays in the L2 cache while all blocks of rows
// pass by.
#pragma once

#include "kernels/cpu/base/isa.h"
#include "kernels/cpu/base/pages.h"
#include "kernels/cpu/base/thread_pool.h"
#include "kernels/cpu/matmul/matmul_kernel.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

// The arithmetic of an isa. Highway's depends on the pin that lives while this is called.
const MatMulKernel& KernelOf(Isa isa);

// `scratch` holds x as packed; it grows as needed and is kept by the caller for the next call.
void MatMul(const MatMulArgs& args, const MatMulKernel& kernel, Pages& scratch, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
