// SPDX-License-Identifier: Apache-2.0
// See CopyRowsArgs. Parallel over rows.
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

void CopyRows(const CopyRowsArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
