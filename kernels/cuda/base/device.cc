// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/base/device.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/code_probe.h"

namespace foretoken::kernels::cuda {
namespace {

cudaMemcpyKind DirectionOf(CopyKind kind) {
  switch (kind) {
    case CopyKind::kToDevice:
      return cudaMemcpyHostToDevice;
    case CopyKind::kToHost:
      return cudaMemcpyDeviceToHost;
    case CopyKind::kOnDevice:
      break;
  }
  // Also between the memories of two GPUs: their addresses are one space.
  return cudaMemcpyDeviceToDevice;
}

// CUDA writes 13.0 as 13000.
CudaVersion VersionOf(int number) { return {number / 1000, number % 1000 / 10}; }

}  // namespace

DeviceFacts QueryDevice(int rank) {
  DeviceFacts facts{.toolkit = VersionOf(CUDART_VERSION)};
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return facts;
  facts.driver = VersionOf(driver);
  const auto failed = [&facts](cudaError_t error) {
    if (error == cudaSuccess) return false;
    if (error != cudaErrorNoDevice) facts.error = cudaGetErrorString(error);
    cudaGetLastError();  // clears the error, so that the next launch does not report it
    return true;
  };
  cudaDeviceProp properties{};
  int num_devices = 0;
  if (failed(cudaGetDeviceCount(&num_devices))) return facts;
  if (num_devices == 0 || failed(cudaSetDevice(rank % num_devices))) return facts;
  if (failed(cudaGetDeviceProperties(&properties, rank % num_devices))) return facts;
  if (failed(cudaMemGetInfo(&facts.free_bytes, &facts.total_bytes))) return facts;
  facts.num_devices = num_devices;
  facts.index = rank % num_devices;
  facts.name = properties.name;
  facts.capability = {properties.major, properties.minor};
  facts.has_code = HasCodeForDevice();
  facts.has_group_mma = facts.has_code && HasGroupMma();
  return facts;
}

Device::Opened Device::Open(int rank) {
  DeviceFacts facts = QueryDevice(rank);
  if (std::optional<std::string> refusal = DeviceRefusal(facts)) return {nullptr, std::move(*refusal)};
  return {std::unique_ptr<Device>(new Device(std::move(facts), rank)), ""};
}

Device::Device(DeviceFacts facts, int rank) : facts_(std::move(facts)), rank_(rank) {
  MakeCurrent();
  FT_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  // Keeps the memory that StreamScratch frees for the next step. By default every synchronisation returns it to the
  // driver.
  cudaMemPool_t pool = nullptr;
  uint64_t kept_bytes = std::numeric_limits<uint64_t>::max();
  FT_CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, facts_.index));
  FT_CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept_bytes));
}

Device::~Device() {
  MakeCurrent();
  FT_CUDA_CHECK(cudaStreamSynchronize(stream_));  // pending work may still use pinned_; its callbacks never run
  FT_CUDA_CHECK(cudaStreamDestroy(stream_));
  current_scratch = nullptr;
}

void Device::MakeCurrent() const {
  SetFailingRank(rank_, facts_.index);
  FT_CUDA_CHECK(cudaSetDevice(facts_.index));
  current_scratch = scratch_.get();
}

void Device::KeepScratch(size_t num_bytes) {
  scratch_ = std::make_unique<ScratchMemory>(num_bytes, stream_, [this](size_t bytes) { return Allocate(bytes); });
  MakeCurrent();
}

Buffer Device::Allocate(size_t num_bytes) {
  if (num_bytes == 0) return Buffer(nullptr, [](void*) {});
  void* data = nullptr;
  FT_CUDA_CHECK(cudaMalloc(&data, num_bytes));
  FT_CUDA_CHECK(cudaMemsetAsync(data, 0, num_bytes, stream_));
  return Buffer(data, [](void* memory) { FT_CUDA_CHECK(cudaFree(memory)); });
}

void Device::Copy(void* to, const void* from, size_t num_bytes, CopyKind kind) {
  if (num_bytes == 0) return;
  FT_CUDA_CHECK(cudaMemcpyAsync(to, from, num_bytes, DirectionOf(kind), stream_));
}

const void* Device::Download(const void* from, size_t num_bytes) {
  void* to = Pinned(num_bytes);
  Copy(to, from, num_bytes, CopyKind::kToHost);
  return to;
}

void Device::Synchronize() {
  FT_CUDA_CHECK(cudaStreamSynchronize(stream_));
  for (const std::function<void()>& callback : callbacks_) callback();
  callbacks_.clear();
  pinned_.Reset();
}

}  // namespace foretoken::kernels::cuda
