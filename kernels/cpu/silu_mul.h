// SPDX-License-Identifier: Apache-2.0
// The gated activation: see SiluMulArgs. Parallel over rows.
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

void SiluMul(const SiluMulArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
