// SPDX-License-Identifier: Apache-2.0
// Failed calls of CUDA. If this test fails, a server continues after a device failure with wrong results, or its last
// message does not help an operator.
#include "kernels/cuda/base/check.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/cuda/base/device.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/matmul/weight.h"
#include "kernels/device_failure.h"

namespace foretoken::kernels::cuda {
namespace {

cudaError_t NoMemory() { return cudaErrorMemoryAllocation; }

TEST(CudaCheck, TakesACallThatSucceeds) { FT_CUDA_CHECK(cudaSuccess); }

TEST(CudaCheckDeathTest, NamesPlaceCallRankAndGpuAndCallsTheHandler) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fail = [] {
    SetFailingRank(3, 1);
    SetDeviceFailureHandler([](const std::string& what) { std::fprintf(stderr, "told: %s\n", what.c_str()); });
    FT_CUDA_CHECK(NoMemory());
  };
  EXPECT_DEATH(fail(),
               "check_test.cc:[0-9]+: NoMemory\\(\\): out of memory \\(cudaErrorMemoryAllocation\\), rank 3 on GPU 1\n"
               "told: .*check_test.cc");
}

// Ranks take turns over the GPUs.
TEST(CudaCheckDeathTest, NamesTheRankThatADeviceWasOpenedFor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Device::Opened opened = Device::Open(2);
  if (opened.device == nullptr) GTEST_SKIP() << opened.error;
  const auto fail = [&] {
    opened.device->MakeCurrent();
    FT_CUDA_CHECK(NoMemory());
  };
  EXPECT_DEATH(fail(), "rank 2 on GPU " + std::to_string(2 % opened.device->facts().num_devices));
}

// A kernel's error shows in the call that waits for its work.
TEST(CudaCheckDeathTest, NamesTheWaitThatFindsAFailedKernel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Device::Opened opened = Device::Open(2);
  if (opened.device == nullptr) GTEST_SKIP() << opened.error;
  const auto fail = [&] {
    Device& device = *opened.device;
    const std::vector<float> row(8);
    const ConstTensorView part = {row.data(), DType::kF32, Shape(1, 8)};
    const auto weight = PrepareWeight({.parts = {&part, 1}, .release = nullptr}, device);
    const Buffer token_ids = device.Allocate(sizeof(int32_t)), out = device.Allocate(8 * sizeof(float));
    const int32_t beyond = 1;  // an id beyond the vocabulary
    device.Copy(token_ids.get(), &beyond, sizeof(beyond), CopyKind::kToDevice);
    Embed({.weight = weight.get(),
           .token_ids = static_cast<const int32_t*>(token_ids.get()),
           .out = {out.get(), DType::kF32, Shape(1, 8)}},
          device.stream());
    device.Synchronize();
  };
  EXPECT_DEATH(fail(), "device.cc:[0-9]+: cudaStreamSynchronize\\(stream_\\): .* \\(cudaError.*\\), rank 2 on GPU ");
}

}  // namespace
}  // namespace foretoken::kernels::cuda
