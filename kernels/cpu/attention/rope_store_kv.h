// SPDX-License-Identifier: Apache-2.0
// Head norms, rotary embedding, and the write into the K/V cache: see RopeStoreKvArgs. Parallel over rows.
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

void RopeStoreKv(const RopeStoreKvArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
