// SPDX-License-Identifier: Apache-2.0
// The decision whether a GPU can serve. If this test fails, a server starts on a GPU or driver that cannot run it, or
// its refusal does not name the cause.
#include "kernels/cuda/base/device_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace foretoken::kernels::cuda {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

DeviceFacts GoodFacts() {
  return {.toolkit = {13, 0},
          .driver = CudaVersion{13, 0},
          .error = std::nullopt,
          .num_devices = 1,
          .name = "NVIDIA H200",
          .capability = {9, 0},
          .has_code = true,
          .free_bytes = 100 * kGiB,
          .total_bytes = 139 * kGiB};
}

TEST(DeviceRefusal, TakesADeviceThatCanServe) { EXPECT_EQ(DeviceRefusal(GoodFacts()), std::nullopt); }

TEST(DeviceRefusal, AcceptsADriverThatIsNewerOrOlderByAMinorVersion) {
  DeviceFacts facts = GoodFacts();
  facts.toolkit = {13, 2};
  EXPECT_EQ(DeviceRefusal(facts), std::nullopt);
  facts.driver = CudaVersion{14, 1};
  EXPECT_EQ(DeviceRefusal(facts), std::nullopt);
}

TEST(DeviceRefusal, SaysThatThereIsNoDriver) {
  EXPECT_EQ(DeviceRefusal({.toolkit = {13, 0}}),
            "device: no NVIDIA driver on this machine; expected one that knows CUDA 13.0 or newer");
}

TEST(DeviceRefusal, SaysThatTheDriverIsOlderThanTheToolkit) {
  DeviceFacts facts = GoodFacts();
  facts.driver = CudaVersion{12, 8};
  facts.error = "CUDA driver version is insufficient for CUDA runtime version";  // CUDA's own text for this, which is
                                                                                 // less clear
  EXPECT_EQ(DeviceRefusal(facts),
            "device: the NVIDIA driver is too old: it knows CUDA up to 12.8, expected CUDA 13.0 or newer");
}

TEST(DeviceRefusal, QuotesTheDriversError) {
  DeviceFacts facts = GoodFacts();
  facts.error = "initialization error";
  EXPECT_EQ(DeviceRefusal(facts), "device: asking the NVIDIA driver for GPUs failed: initialization error");
}

TEST(DeviceRefusal, SaysThatThereIsNoGpu) {
  DeviceFacts facts = GoodFacts();
  facts.num_devices = 0;
  EXPECT_EQ(DeviceRefusal(facts), "device: no GPU that this process may see (is CUDA_VISIBLE_DEVICES set?)");
}

TEST(DeviceRefusal, NamesAGpuThatIsTooOld) {
  DeviceFacts facts = GoodFacts();
  facts.name = "Tesla T4";
  facts.capability = {7, 5};
  facts.has_code = false;
  EXPECT_EQ(DeviceRefusal(facts), "device: Tesla T4 has compute capability 7.5, expected 8.0 or newer");
}

TEST(DeviceRefusal, NamesAGpuThatTheBuildHasNoKernelsFor) {
  DeviceFacts facts = GoodFacts();
  facts.has_code = false;
  EXPECT_EQ(
      DeviceRefusal(facts),
      "device: this build has no kernels for NVIDIA H200, compute capability 9.0; build it with that architecture");
}

TEST(MemoryRefusal, AcceptsANeedThatJustFits) {
  const MemoryNeed need = {.weight_bytes = 59 * kGiB, .kv_bytes = 40 * kGiB, .pass_bytes = kGiB};
  EXPECT_EQ(MemoryRefusal(need, GoodFacts()), std::nullopt);
}

TEST(MemoryRefusal, GivesTheMissingBytesAndTheLargestKvCache) {
  const MemoryNeed need = {.weight_bytes = 59 * kGiB, .kv_bytes = 42 * kGiB + kGiB / 2, .pass_bytes = kGiB};
  EXPECT_EQ(MemoryRefusal(need, GoodFacts()),
            "device: weights take 59.00 GiB, K/V 42.50 GiB and a forward pass 1.00 GiB, but NVIDIA H200 has 100.00 GiB "
            "of 139.00 GiB free: 2.50 GiB too little; --kv_cache_mb may be at most 40960");
}

TEST(MemoryRefusal, CountsTheKvOfAllDevicesThatShareIt) {
  const MemoryNeed need = {.weight_bytes = 60 * kGiB, .kv_bytes = 42 * kGiB};
  EXPECT_THAT(MemoryRefusal(need, GoodFacts(), 4).value_or(""), ::testing::EndsWith("may be at most 163840"));
}

TEST(MemoryRefusal, SaysThatWeightsAloneAreTooMuch) {
  EXPECT_EQ(MemoryRefusal({.weight_bytes = 140 * kGiB, .kv_bytes = 4 * kGiB}, GoodFacts()),
            "device: weights take 140.00 GiB, K/V 4.00 GiB and a forward pass 0.00 GiB, but NVIDIA H200 has 100.00 GiB "
            "of 139.00 GiB free: 44.00 GiB too little; no --kv_cache_mb helps: the weights need a larger GPU");
}

TEST(MemoryRefusal, NamesTheRowsOfAStepWhereTheyAreTooMuch) {
  const MemoryNeed need = {.weight_bytes = 99 * kGiB, .kv_bytes = 4 * kGiB, .pass_bytes = 2 * kGiB};
  EXPECT_THAT(MemoryRefusal(need, GoodFacts()).value_or(""),
              ::testing::EndsWith("5.00 GiB too little; no --kv_cache_mb alone helps: lower --max_step_rows, too"));
}

}  // namespace
}  // namespace foretoken::kernels::cuda
