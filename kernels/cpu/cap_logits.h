// SPDX-License-Identifier: Apache-2.0
// See CapLogitsArgs. Parallel over rows.
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

void CapLogits(const CapLogitsArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
