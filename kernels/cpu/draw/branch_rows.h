// SPDX-License-Identifier: Apache-2.0
// See BranchRowsArgs.
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

void BranchRows(const BranchRowsArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
