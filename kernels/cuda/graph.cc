// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/graph.h"

#include "kernels/cuda/base/check.h"

namespace foretoken::kernels::cuda {

Graph::Graph(Device& device, const std::function<void()>& enqueue) : device_(device) {
  // Other threads have GPUs and captures of their own.
  FT_CUDA_CHECK(cudaStreamBeginCapture(device.stream(), cudaStreamCaptureModeThreadLocal));
  enqueue();
  cudaGraph_t graph = nullptr;
  FT_CUDA_CHECK(cudaStreamEndCapture(device.stream(), &graph));
  FT_CUDA_CHECK(cudaGraphInstantiate(&executable_, graph, 0));
  FT_CUDA_CHECK(cudaGraphDestroy(graph));
}

Graph::~Graph() {
  device_.MakeCurrent();
  FT_CUDA_CHECK(cudaGraphExecDestroy(executable_));
}

void Graph::Enqueue() {
  device_.MakeCurrent();
  FT_CUDA_CHECK(cudaGraphLaunch(executable_, device_.stream()));
}

}  // namespace foretoken::kernels::cuda
