// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA runtime that kernels/cuda uses, on the host. If kernels/cuda is compiled as plain C++ with this
// folder first in the include path, its kernels run on any machine. Host memory is device memory.
//
// A stream's work waits until a thread synchronises. So a result that is read too early shows, and so does a copy whose
// source is freed too early. Blocks run one after another, in any order. In a block one warp runs at a time, out of
// step with other warps, and its threads run in any order to their next barrier. So a missing barrier shows as a wrong
// result, and equal launches give equal results. A captured stream becomes a graph that can be launched many times.
// Calls that CUDA forbids during a capture fail here too. New memory holds ones in every bit, a NaN in each of our
// types. If part of a block or warp does not reach a barrier, the process ends.
//
// It cannot show the GPU's own rounding of expf, timing, or races that need another order.
// Threads: any; one kernel runs at a time.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <span>
#include <tuple>
#include <utility>

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

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

void __syncthreads();
void __syncwarp();
// Shuffles among all 32 threads of a warp. The mask must be all ones.
float __shfl_xor_sync(unsigned lanes, float value, int lane_mask);
template <typename Other>
Other __shfl_xor_sync(unsigned lanes, Other value, int lane_mask) = delete;  // and no conversion to float
int __reduce_min_sync(unsigned lanes, int value);
int __reduce_max_sync(unsigned lanes, int value);
int __any_sync(unsigned lanes, int predicate);
// Makes the device fail. All later calls that need the device return an error.
[[noreturn]] void __trap();

// Does nothing, because blocks run one after another and the threads of a block take turns.
inline void __threadfence() {}
inline unsigned atomicAdd(unsigned* to, unsigned value) { return (*to += value) - value; }
inline unsigned long long atomicAdd(unsigned long long* to, unsigned long long value) { return (*to += value) - value; }
template <typename T>
T __ldcg(const T* from) {
  return *from;
}

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
};
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

// --- the device ---

struct cudaDeviceProp {
  char name[256];
  int major;
  int minor;
};
struct cudaFuncAttributes {};
inline cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
// The devices share one memory.
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 4, cudaSuccess; }
cudaError_t cudaSetDevice(int device);  // for the calling thread
cudaError_t cudaGetDevice(int* device);
inline constexpr int kMaxDynamicSharedBytes = 227 << 10;  // of compute capability 9.0
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin };
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return *value = kMaxDynamicSharedBytes, cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
template <typename Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, Kernel) {
  return cudaSuccess;
}

// --- streams and memory ---

namespace foretoken::testing {
struct EmulatedStream;
struct EmulatedGraph;
// Appends work to the stream. A null stream runs it at once.
cudaError_t Enqueue(EmulatedStream* stream, std::function<void()> work);
// True if the calling thread may launch kernels on the stream, because it belongs to the current device.
bool IsOfCurrentDevice(const EmulatedStream* stream);
}  // namespace foretoken::testing

using cudaStream_t = foretoken::testing::EmulatedStream*;
inline constexpr unsigned cudaStreamNonBlocking = 1;
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

using cudaGraph_t = foretoken::testing::EmulatedGraph*;
using cudaGraphExec_t = foretoken::testing::EmulatedGraph*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
cudaError_t cudaMalloc(void** data, size_t num_bytes);
cudaError_t cudaFree(void* data);
cudaError_t cudaMallocHost(void** data, size_t num_bytes);
cudaError_t cudaFreeHost(void* data);
using cudaMemPool_t = void*;
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };
inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) { return *pool = nullptr, cudaSuccess; }
inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMallocAsync(void** data, size_t num_bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* data, int value, size_t num_bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t num_bytes, cudaMemcpyKind kind, cudaStream_t stream);
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t num_bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, num_bytes, kind, nullptr);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
                              size_t num_rows, cudaMemcpyKind kind, cudaStream_t stream);

// --- launches ---

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };

namespace foretoken::testing {

// Sets the dynamic shared memory that launches of a kernel may request. The kernel's static shared memory counts too,
// but is unknown here. So the default is 0, and a launch with dynamic shared memory must call this first.
void AllowDynamicSharedMemory(const void* kernel, size_t num_bytes);
size_t AllowedDynamicSharedMemory(const void* kernel);

// Runs `thread` for every thread of every block of the launch.
void RunGrid(const cudaLaunchConfig_t& launch, const std::function<void()>& thread);

// True if a kernel of this process has trapped.
bool DeviceHasFailed();

// The dynamic shared memory of the running block. Each block gets new memory.
void* DynamicSharedMemory();

// All 32 threads of a warp meet with the same operation. The operation then runs once on their operands, lane by lane.
using WarpOperation = void (*)(std::span<void* const> operands);
void MeetWarp(WarpOperation operation, void* operand);

}  // namespace foretoken::testing

template <typename... Params>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Params...), cudaFuncAttribute, int num_bytes) {
  if (num_bytes < 0 || num_bytes > kMaxDynamicSharedBytes) return cudaErrorInvalidValue;
  foretoken::testing::AllowDynamicSharedMemory(reinterpret_cast<const void*>(kernel), num_bytes);
  return cudaSuccess;
}

template <typename... Params, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...), Args&&... args) {
  const size_t allowed = foretoken::testing::AllowedDynamicSharedMemory(reinterpret_cast<const void*>(kernel));
  if (config->dynamicSmemBytes > allowed) return cudaErrorInvalidValue;
  if (!foretoken::testing::IsOfCurrentDevice(config->stream)) return cudaErrorInvalidResourceHandle;
  return foretoken::testing::Enqueue(
      config->stream, [config = *config, kernel, params = std::tuple<Params...>(std::forward<Args>(args)...)] {
        foretoken::testing::RunGrid(config, [&] { std::apply(kernel, params); });
      });
}
// NOLINTEND(bugprone-reserved-identifier,google-explicit-constructor,google-runtime-int)
