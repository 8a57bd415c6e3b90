// SPDX-License-Identifier: Apache-2.0
// What a stream was given, as one CUDA graph: launched by one call, with no gaps between its kernels.
#pragma once

#include <cuda_runtime.h>

#include <functional>

#include "kernels/cuda/base/device.h"
#include "kernels/recorder.h"

namespace foretoken::kernels::cuda {

class Graph final : public Recording {
 public:
  // Captures what `enqueue` enqueues on the device's stream. CUDA refuses to wait or to allocate meanwhile.
  Graph(Device& device, const std::function<void()>& enqueue);
  ~Graph() override;

  void Enqueue() override;

 private:
  Device& device_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace foretoken::kernels::cuda
