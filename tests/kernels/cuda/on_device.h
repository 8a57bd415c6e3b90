// SPDX-License-Identifier: Apache-2.0
// The CUDA ops on arguments whose pointers are all the host's: inputs are copied to the device, the op runs, and what
// it wrote is copied back. So a test reads like one of the CPU's, and tests/reference takes the same arguments.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/weight.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// A test that is skipped, by name and with the reason, where no device is.
class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override;

  Device& device() { return *device_; }

  std::unique_ptr<CudaWeight> Prepare(const ConstTensorView& part) {
    return PrepareWeight({.parts = {&part, 1}, .release = nullptr}, device());
  }

  // `weight` is the device's already.
  void RunEmbed(EmbedArgs args);
  void RunMatMul(MatMulArgs args);
  void RunRmsNorm(RmsNormArgs args);
  void RunSiluMul(SiluMulArgs args);
  void RunRopeStoreKv(RopeStoreKvArgs args, int32_t num_positions);
  void RunAttention(AttentionArgs args);
  void RunMoveKv(MoveKvArgs args);

 private:
  // A copy on the device, until the next op.
  void* Upload(const void* data, size_t num_bytes);
  template <typename T>
  const T* Upload(const T* data, size_t count) {
    return data == nullptr ? nullptr : static_cast<const T*>(Upload(static_cast<const void*>(data), count * sizeof(T)));
  }
  ConstTensorView Upload(ConstTensorView view);
  TensorView Upload(TensorView view);
  KvCacheView Upload(KvCacheView kv);
  // Copies back what the op wrote, and forgets the copies.
  void Finish(const TensorView& from, const TensorView& to);
  void Finish(const KvCacheView& from, const KvCacheView& to);

  std::unique_ptr<Device> device_;
  std::vector<Buffer> copies_;
};

}  // namespace foretoken::kernels::cuda
