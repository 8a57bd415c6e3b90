// SPDX-License-Identifier: Apache-2.0
// A stream's pending work is a list of functions. A graph is a list of functions too, with the memory that the stream
// allocated during the capture. This memory holds ones in every bit when the graph reaches its allocation, and again
// after the graph frees it.
#include <cuda_runtime.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

namespace foretoken::testing {

using Work = std::vector<std::function<void()>>;

struct GraphMemory {
  void* data = nullptr;
  size_t num_bytes = 0;
};

struct EmulatedGraph {
  Work work;
  std::vector<GraphMemory> memory;
};

struct EmulatedStream {
  int device = 0;
  Work pending;
  EmulatedGraph* captured = nullptr;  // not null during a capture
};

namespace {

constexpr size_t kDeviceBytes = size_t{1} << 30;  // the largest total of allocations

std::recursive_mutex mutex;  // guards everything below and all running work
std::vector<EmulatedStream*> streams;
std::atomic<size_t> used_bytes;  // in allocations of cudaMalloc
thread_local int current_device = 0;
thread_local int num_captures = 0;  // unfinished captures of this thread

void Run(EmulatedStream& stream) {
  Work work;
  work.swap(stream.pending);
  for (const std::function<void()>& task : work) task();
}

// Runs all pending work, for calls that wait for the whole device.
void RunAll() {
  for (EmulatedStream* stream : streams) Run(*stream);
}

}  // namespace

bool IsOfCurrentDevice(const EmulatedStream* stream) { return stream == nullptr || stream->device == current_device; }

cudaError_t Enqueue(EmulatedStream* stream, std::function<void()> work) {
  const std::lock_guard lock(mutex);
  if (DeviceHasFailed()) return cudaErrorLaunchFailure;
  if (stream == nullptr) {
    RunAll();
    work();
  } else {
    (stream->captured != nullptr ? stream->captured->work : stream->pending).push_back(std::move(work));
  }
  return cudaSuccess;
}

}  // namespace foretoken::testing

using foretoken::testing::EmulatedGraph;
using foretoken::testing::EmulatedStream;
using foretoken::testing::Enqueue;
using foretoken::testing::GraphMemory;
using foretoken::testing::mutex;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
  }
  return "unrecognized error code";
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
  }
  return "unrecognized error code";
}

// --- the device ---

cudaError_t cudaSetDevice(int device) {
  foretoken::testing::current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = foretoken::testing::current_device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::snprintf(properties->name, sizeof(properties->name), "emulated GPU");
  properties->major = 9;
  properties->minor = 0;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  const size_t used_bytes = foretoken::testing::used_bytes;
  *total_bytes = foretoken::testing::kDeviceBytes;
  *free_bytes = *total_bytes > used_bytes ? *total_bytes - used_bytes : 0;
  return cudaSuccess;
}

// --- streams and graphs ---

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(mutex);
  *stream = foretoken::testing::streams.emplace_back(new EmulatedStream{.device = foretoken::testing::current_device});
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  foretoken::testing::Run(*stream);
  std::erase(foretoken::testing::streams, stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  if (stream->captured != nullptr) return cudaErrorStreamCaptureUnsupported;
  foretoken::testing::Run(*stream);
  return foretoken::testing::DeviceHasFailed() ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const std::lock_guard lock(mutex);
  if (stream->captured != nullptr) return cudaErrorStreamCaptureUnsupported;
  stream->captured = new EmulatedGraph;
  ++foretoken::testing::num_captures;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(mutex);
  if (stream->captured == nullptr) return cudaErrorStreamCaptureUnsupported;
  *graph = std::exchange(stream->captured, nullptr);
  --foretoken::testing::num_captures;
  return cudaSuccess;
}

// Makes an executable graph with the graph's work. The graph keeps its memory.
// NOLINTNEXTLINE(google-runtime-int): the form is CUDA's
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  const std::lock_guard lock(mutex);
  *executable = new EmulatedGraph{.work = graph->work, .memory = std::exchange(graph->memory, {})};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return Enqueue(stream, [work = executable->work] {
    for (const std::function<void()>& task : work) task();
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const std::lock_guard lock(mutex);
  for (const GraphMemory& memory : graph->memory) std::free(memory.data);
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) { return cudaGraphDestroy(executable); }

// --- memory ---

namespace {

constexpr size_t kAlignment = 256;  // guaranteed by CUDA

cudaError_t Allocate(void** data, size_t num_bytes) {
  if (num_bytes > foretoken::testing::kDeviceBytes) return cudaErrorMemoryAllocation;
  if (posix_memalign(data, kAlignment, num_bytes) != 0) return cudaErrorMemoryAllocation;
  std::memset(*data, 0xff, num_bytes);
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaMalloc(void** data, size_t num_bytes) {
  if (foretoken::testing::num_captures > 0) return cudaErrorStreamCaptureUnsupported;
  const cudaError_t error = Allocate(data, num_bytes);
  if (error == cudaSuccess) foretoken::testing::used_bytes += malloc_usable_size(*data);
  return error;
}

cudaError_t cudaFree(void* data) {
  const std::lock_guard lock(mutex);
  if (foretoken::testing::num_captures > 0) return cudaErrorStreamCaptureUnsupported;
  foretoken::testing::RunAll();
  foretoken::testing::used_bytes -= malloc_usable_size(data);
  std::free(data);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** data, size_t num_bytes) { return cudaMalloc(data, num_bytes); }
cudaError_t cudaFreeHost(void* data) { return cudaFree(data); }

cudaError_t cudaMallocAsync(void** data, size_t num_bytes, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  if (num_bytes == 0) return cudaErrorInvalidValue;
  const cudaError_t error = Allocate(data, num_bytes);
  if (error != cudaSuccess || stream->captured == nullptr) return error;
  stream->captured->memory.push_back({*data, num_bytes});
  return cudaMemsetAsync(*data, 0xff, num_bytes, stream);
}

// A graph keeps its allocations.
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  if (stream->captured == nullptr) return Enqueue(stream, [data] { std::free(data); });
  const auto& memory = stream->captured->memory;
  const auto freed = std::ranges::find(memory, data, &GraphMemory::data);
  if (freed == memory.end()) return cudaErrorInvalidValue;
  return cudaMemsetAsync(data, 0xff, freed->num_bytes, stream);
}

cudaError_t cudaMemsetAsync(void* data, int value, size_t num_bytes, cudaStream_t stream) {
  return Enqueue(stream, [=] { std::memset(data, value, num_bytes); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t num_bytes, cudaMemcpyKind, cudaStream_t stream) {
  return Enqueue(stream, [=] { std::memcpy(to, from, num_bytes); });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
                              size_t num_rows, cudaMemcpyKind, cudaStream_t stream) {
  return Enqueue(stream, [=] {
    for (size_t row = 0; row < num_rows; ++row) {
      std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch,
                  row_bytes);
    }
  });
}
