// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>

#include "kernels/cuda/base/device.h"

namespace foretoken::kernels::cuda {

// What `enqueue` enqueues takes so many seconds, by the wall's clock, of several enqueued before one wait: the GPU is
// measured and not the host.
inline double EnqueuedSeconds(int num_repetitions, const std::function<void()>& enqueue, Device& device) {
  enqueue();  // the first brings memory and code in
  device.Synchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < num_repetitions; ++i) enqueue();
  device.Synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / num_repetitions;
}

}  // namespace foretoken::kernels::cuda
