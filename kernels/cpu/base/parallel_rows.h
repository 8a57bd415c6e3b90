// SPDX-License-Identifier: Apache-2.0
// A loop over rows on all threads, for ops that compute each row by itself.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/base/thread_pool.h"

namespace foretoken::kernels::cpu {

// Calls fn(row) for every row in [0, num_rows). `row_elements` is the number of elements that fn reads of a row. Short
// rows share a task, so that each task is worth waking a thread.
template <typename Fn>
void ParallelForRows(int64_t num_rows, int64_t row_elements, ThreadPool& pool, Fn&& fn) {
  constexpr int64_t kTaskElements = 8192;
  const int64_t rows_per_task = std::max<int64_t>(1, kTaskElements / row_elements);
  pool.ParallelFor((num_rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int) {
    const int64_t end = std::min(num_rows, (task + 1) * rows_per_task);
    for (int64_t row = task * rows_per_task; row < end; ++row) fn(row);
  });
}

}  // namespace foretoken::kernels::cpu
