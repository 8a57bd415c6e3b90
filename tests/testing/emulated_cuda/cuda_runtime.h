// SPDX-License-Identifier: Apache-2.0
// As much of the CUDA runtime as kernels/cuda uses, on the host: whoever compiles kernels/cuda as plain C++ with this
// folder in front of the include path gets kernels that run on any machine. One machine's memory is device memory; a
// stream's work is done when the call returns; blocks run one after another, each of a block's threads up to its next
// barrier, in the order of their numbers or against it. So a missing barrier shows as a wrong result, always the same.
//
// What it cannot show: the GPU's own rounding of expf, timing, and races whose outcome hangs on another order.
// New memory holds ones in every bit, a NaN in each of our types. Barriers that part of a block or warp does not reach
// end the process.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <functional>

// NOLINTBEGIN(bugprone-reserved-identifier,google-explicit-constructor,google-runtime-int): the names and forms are
// CUDA's
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)

#define CUDART_VERSION 13000

struct dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

void __syncthreads();
void __syncwarp();
// Threads take turns, so nothing comes in between.
inline unsigned atomicAdd(unsigned* to, unsigned value) { return (*to += value) - value; }
inline unsigned long long atomicAdd(unsigned long long* to, unsigned long long value) { return (*to += value) - value; }
[[noreturn]] inline void __trap() { std::abort(); }

enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2, cudaErrorNoDevice = 100 };
inline const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "out of memory"; }
inline const char* cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "success" : "memory"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

// --- the device
// -------------------------------------------------------------------------------------------------------

struct cudaDeviceProp {
  char name[256];
  int major;
  int minor;
};
struct cudaFuncAttributes {};
inline cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
template <typename Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, Kernel) {
  return cudaSuccess;
}

// --- streams and memory
// -----------------------------------------------------------------------------------------------

using cudaStream_t = void*;
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return *stream = nullptr, cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
cudaError_t cudaMalloc(void** data, size_t num_bytes);
cudaError_t cudaFree(void* data);
inline cudaError_t cudaMallocHost(void** data, size_t num_bytes) { return cudaMalloc(data, num_bytes); }
inline cudaError_t cudaFreeHost(void* data) { return cudaFree(data); }
inline cudaError_t cudaMallocAsync(void** data, size_t num_bytes, cudaStream_t) { return cudaMalloc(data, num_bytes); }
inline cudaError_t cudaFreeAsync(void* data, cudaStream_t) { return cudaFree(data); }
cudaError_t cudaMemsetAsync(void* data, int value, size_t num_bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t num_bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
                              size_t num_rows, cudaMemcpyKind kind, cudaStream_t stream);

// --- launches
// ---------------------------------------------------------------------------------------------------------

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  cudaStream_t stream;
};

namespace foretoken::testing {
// Runs `thread` for every thread of every block.
void RunGrid(const dim3& grid, const dim3& block, const std::function<void()>& thread);
}  // namespace foretoken::testing

template <typename... Params, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...), Args&&... args) {
  foretoken::testing::RunGrid(config->gridDim, config->blockDim, [&] { kernel(args...); });
  return cudaSuccess;
}
// NOLINTEND(bugprone-reserved-identifier,google-explicit-constructor,google-runtime-int)
