// SPDX-License-Identifier: Apache-2.0
// See SpreadLogitsArgs. Parallel over rows.
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

void SpreadLogits(const SpreadLogitsArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
