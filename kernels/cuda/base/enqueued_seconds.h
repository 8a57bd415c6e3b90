// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>

#include "kernels/cuda/base/device.h"

namespace foretoken::kernels::cuda {

// Returns the seconds of wall time that the work enqueued by `enqueue` takes. Several repetitions are enqueued before
// one wait, so that this measures the GPU and not the host.
inline double EnqueuedSeconds(int num_repetitions, const std::function<void()>& enqueue, Device& device) {
  enqueue();  // loads memory and code first
  device.Synchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < num_repetitions; ++i) enqueue();
  device.Synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / num_repetitions;
}

}  // namespace foretoken::kernels::cuda
