// SPDX-License-Identifier: Apache-2.0
// The memory check of the CUDA backend. If this test fails, a server runs out of GPU memory while it serves.
#include "kernels/cuda/cuda_backend.h"

#include <gtest/gtest.h>

#include "kernels/cuda/base/device.h"

namespace foretoken::kernels::cuda {
namespace {

// Ops need memory beside the model's tensors.
TEST(CudaBackend, RefusesAModelThatLeavesNoMemoryForOps) {
  const MadeBackend made = MakeBackend({.device = "cuda"});
  if (made.backend == nullptr) GTEST_SKIP() << made.error;
  const size_t free_bytes = QueryDevice().free_bytes;
  EXPECT_EQ(made.backend->MemoryRefusal({.kv_bytes = free_bytes / 4}), std::nullopt);
  EXPECT_NE(made.backend->MemoryRefusal({.kv_bytes = free_bytes - free_bytes / 1000}), std::nullopt);
}

// Other ranks on the GPU, and their communicator, may have taken memory meanwhile.
TEST(CudaBackend, CountsTheMemoryThatIsFreeWhenItIsAsked) {
  const MadeBackend made = MakeBackend({.device = "cuda"});
  if (made.backend == nullptr) GTEST_SKIP() << made.error;
  constexpr size_t kMiB = size_t{1} << 20;
  const MemoryNeed need = {.kv_bytes = QueryDevice().free_bytes - 768 * kMiB};
  EXPECT_EQ(made.backend->MemoryRefusal(need), std::nullopt);
  const Buffer taken = made.backend->Allocate(300 * kMiB);
  EXPECT_NE(made.backend->MemoryRefusal(need), std::nullopt);
}

}  // namespace
}  // namespace foretoken::kernels::cuda
