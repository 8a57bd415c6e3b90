// SPDX-License-Identifier: Apache-2.0
// Verification: walks token trees along the tokens that the target draws. See AcceptTreesArgs. Parallel over trees.
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

void AcceptTrees(const AcceptTreesArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
