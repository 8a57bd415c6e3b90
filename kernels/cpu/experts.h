// SPDX-License-Identifier: Apache-2.0
// The experts of a layer: see ExpertsArgs. The rows that chose an expert are gathered, and their products are those of
// a dense layer with as many rows. Rows are sorted by expert, so each expert's weights are read once.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "kernels/cpu/base/pages.h"
#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

struct CpuExperts final : ExpertSet {
  explicit CpuExperts(std::function<Expert(int32_t expert)> get) : expert(std::move(get)) {}

  const std::function<Expert(int32_t expert)> expert;
};

// `scratch` holds the gathered rows and what becomes of them. It grows as needed, and the caller keeps it for the next
// call.
void Experts(const ExpertsArgs& args, const std::function<void(const MatMulArgs&)>& matmul, Pages& scratch,
             ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
