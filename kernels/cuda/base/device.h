// SPDX-License-Identifier: Apache-2.0
// A GPU that this process computes on: its memory and the one stream on which ops are enqueued in order.
//
// Errors: what a machine may lack is found when the device is opened and comes back as one line. Whatever CUDA refuses
// later ends the process with call and place.
// Threads: one caller at a time, for whom the device is the current one: from Open on, elsewhere after MakeCurrent.
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

namespace foretoken::kernels::cuda {

// Asks the driver about the GPU of a rank: ranks take turns over those that this process may see. Never fails: what
// cannot be had is missing from the answer.
DeviceFacts QueryDevice(int rank = 0);

class Device {
 public:
  struct Opened {
    std::unique_ptr<Device> device;  // null on an error
    std::string error;               // what, expected and got
  };
  static Opened Open(int rank = 0);

  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Before anything else on a thread that did not open the device.
  void MakeCurrent() const;

  const DeviceFacts& facts() const { return facts_; }
  cudaStream_t stream() const { return stream_; }

  // Zeroed in the stream's order. No bytes are a null pointer.
  Buffer Allocate(size_t num_bytes);
  // Enqueued: the host's memory is the copy's until Synchronize.
  void Copy(void* to, const void* from, size_t num_bytes, CopyKind kind);
  // Page-locked memory of the host until the end of the next Synchronize: what copies read and write.
  void* Pinned(size_t num_bytes) { return pinned_.Take(num_bytes); }
  // Enqueues a copy into such memory: where the bytes are, for callbacks of AtSynchronize.
  const void* Download(const void* from, size_t num_bytes);
  // Called at the next Synchronize, when all that is enqueued now is done: an op's last part on the host, which
  // enqueues nothing. In the order in which they came here.
  void AtSynchronize(std::function<void()> callback) { callbacks_.push_back(std::move(callback)); }
  void Synchronize();

 private:
  Device(DeviceFacts facts, int rank);

  DeviceFacts facts_;
  int rank_;
  cudaStream_t stream_ = nullptr;
  PinnedMemory pinned_;
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace foretoken::kernels::cuda
