// SPDX-License-Identifier: Apache-2.0
// A step of a gated recurrent cell: see RecurrentCellArgs. Parallel over rows.
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

void RecurrentCell(const RecurrentCellArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
