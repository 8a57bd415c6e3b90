// SPDX-License-Identifier: Apache-2.0
// Activations that are no gates: see ActivateArgs. Parallel over rows.
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

void Activate(const ActivateArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
