// SPDX-License-Identifier: Apache-2.0
// Reads rows of the embedding table from the panels that the tied output head multiplies with. Exact.
#pragma once

#include "kernels/cpu/base/thread_pool.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cpu {

void Embed(const EmbedArgs& args, ThreadPool& pool);

}  // namespace foretoken::kernels::cpu
