// SPDX-License-Identifier: Apache-2.0
// Moves accepted rows' K and V into place: see MoveKvArgs. Parallel over layers.
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

void MoveKv(const MoveKvArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
