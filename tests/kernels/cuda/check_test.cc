// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/check.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "kernels/cuda/device.h"
#include "kernels/device_failure.h"

namespace foretoken::kernels::cuda {
namespace {

cudaError_t NoMemory() { return cudaErrorMemoryAllocation; }

TEST(CudaCheck, TakesACallThatSucceeds) { FT_CUDA_CHECK(cudaSuccess); }

TEST(CudaCheckDeathTest, NamesPlaceCallRankAndGpuAndTellsTheHandler) {
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

// Ranks take turns over the GPUs that there are.
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

}  // namespace
}  // namespace foretoken::kernels::cuda
