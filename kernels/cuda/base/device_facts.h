// SPDX-License-Identifier: Apache-2.0
// What the driver says about one of a machine's GPUs, and whether it can serve. Pure: device.h asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/backend.h"

namespace foretoken::kernels::cuda {

// A CUDA version: 13.0.
struct CudaVersion {
  int32_t major = 0;
  int32_t minor = 0;
};

struct DeviceFacts {
  CudaVersion toolkit;                // what this build was made with
  std::optional<CudaVersion> driver;  // the newest CUDA that the driver knows; none: no driver
  std::optional<std::string> error;   // the driver's words, where asking for devices failed
  int32_t num_devices = 0;            // that this process may see
  int32_t index = 0;                  // of the device that was asked about, among them
  std::string name;                   // of that device, as all below
  CudaVersion capability;             // compute capability
  bool has_code = false;              // whether this build's kernels run on it
  size_t free_bytes = 0;
  size_t total_bytes = 0;
};

// Why the device cannot serve, in one line; none: it can. A driver may be older than the toolkit by a minor version,
// but not by a major one.
std::optional<std::string> DeviceRefusal(const DeviceFacts& facts);

// How much is missing and which flag to turn, in one line; none: it fits. The need is that of all ranks on the device,
// one of `num_devices` over which the K/V is spread.
std::optional<std::string> MemoryRefusal(const MemoryNeed& need, const DeviceFacts& facts, int num_devices = 1);

}  // namespace foretoken::kernels::cuda
