// SPDX-License-Identifier: Apache-2.0
// A GPU that this process computes on: its memory, and the one stream on which ops are enqueued in order.
//
// Errors: Open checks the machine and returns one line about the fault. Any error of CUDA after that ends the process
// with call and place.
// Threads: one caller at a time. The device must be the calling thread's current device. Open and MakeCurrent make it
// so for the thread that calls them.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/base/device_facts.h"
#include "kernels/cuda/base/pinned_memory.h"
#include "kernels/cuda/base/scratch_memory.h"

namespace foretoken::kernels::cuda {

// Asks the driver about the GPU of a rank. Ranks take turns over the GPUs that this process may see. Never fails: facts
// that the driver does not give are missing from the answer.
DeviceFacts QueryDevice(int rank = 0);

class Device {
 public:
  struct Opened {
    std::unique_ptr<Device> device;  // null on an error
    std::string error;               // says the fault, the expected value and the given one
  };
  static Opened Open(int rank = 0);

  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Call this first on a thread that did not open the device.
  void MakeCurrent() const;

  const DeviceFacts& facts() const { return facts_; }
  cudaStream_t stream() const { return stream_; }

  // Zeroed in the stream's order. For 0 bytes it returns a null pointer.
  Buffer Allocate(size_t num_bytes);
  // Keeps so much memory for StreamScratch from its first use on. Call it once, before any op.
  void KeepScratch(size_t num_bytes);
  // Enqueues the copy. The host's memory must stay unchanged until Synchronize.
  void Copy(void* to, const void* from, size_t num_bytes, CopyKind kind);
  // Page-locked host memory for copies, valid until the end of the next Synchronize.
  void* Pinned(size_t num_bytes) { return pinned_.Take(num_bytes); }
  // Enqueues a copy into such memory. Returns its address, for callbacks of AtSynchronize.
  const void* Download(const void* from, size_t num_bytes);
  // Registers a callback for the next Synchronize, which calls it when all work enqueued so far is done. It is an op's
  // last part on the host, and it enqueues nothing. Callbacks run in the order of registration.
  void AtSynchronize(std::function<void()> callback) { callbacks_.push_back(std::move(callback)); }
  void Synchronize();

 private:
  Device(DeviceFacts facts, int rank);

  DeviceFacts facts_;
  int rank_;
  cudaStream_t stream_ = nullptr;
  PinnedMemory pinned_;
  std::unique_ptr<ScratchMemory> scratch_;  // null: none
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace foretoken::kernels::cuda
