// SPDX-License-Identifier: Apache-2.0
// See SumRanksArgs.
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

void SumRanks(const SumRanksArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
