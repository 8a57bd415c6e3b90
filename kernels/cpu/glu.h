// SPDX-License-Identifier: Apache-2.0
// The gated activation: see GluArgs. Parallel over rows.
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

void Glu(const GluArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
