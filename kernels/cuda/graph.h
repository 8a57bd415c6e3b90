// SPDX-License-Identifier: Apache-2.0
// The work enqueued on a stream, as one CUDA graph: one call launches it, without gaps between its kernels.
#pragma once

#include <cuda_runtime.h>

#include <functional>

#include "kernels/cuda/base/device.h"
#include "kernels/recorder.h"

namespace foretoken::kernels::cuda {

class Graph final : public Recording {
 public:
  // Captures the work that `enqueue` enqueues on the device's stream. During the capture CUDA refuses to wait or to
  // allocate.
  Graph(Device& device, const std::function<void()>& enqueue);
  ~Graph() override;

  void Enqueue() override;

 private:
  Device& device_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace foretoken::kernels::cuda
