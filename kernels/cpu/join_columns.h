// SPDX-License-Identifier: Apache-2.0
// See JoinColumnsArgs.
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

void JoinColumns(const JoinColumnsArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
