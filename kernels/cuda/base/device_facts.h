// SPDX-License-Identifier: Apache-2.0
// The driver's facts about one of a machine's GPUs, and the decision whether that GPU can serve. Pure: device.h asks
// the driver.
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
  CudaVersion toolkit;                // the CUDA version of this build
  std::optional<CudaVersion> driver;  // the newest CUDA that the driver knows; unset: no driver
  std::optional<std::string> error;   // the driver's error text, where the question for devices failed
  int32_t num_devices = 0;            // devices that this process may see
  int32_t index = 0;                  // of the chosen device among them
  std::string name;                   // of that device, as are all fields below
  CudaVersion capability;             // compute capability
  bool has_code = false;              // whether this build's kernels run on it
  bool has_group_mma = false;         // whether they have ptx::GroupMma there
  size_t free_bytes = 0;
  size_t total_bytes = 0;
};

// One line that says why the device cannot serve; unset: it can. A driver may be older than the toolkit by a minor
// version, but not by a major version.
std::optional<std::string> DeviceRefusal(const DeviceFacts& facts);

// One line that says how much memory is missing and which flag to turn; unset: the memory suffices. `need` is the sum
// over all ranks on the device. The K/V is spread over `num_devices` devices.
std::optional<std::string> MemoryRefusal(const MemoryNeed& need, const DeviceFacts& facts, int num_devices = 1);

}  // namespace foretoken::kernels::cuda
