// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/base/device_facts.h"

#include <cstdio>

namespace foretoken::kernels::cuda {
namespace {

constexpr CudaVersion kMinCapability = {8, 0};
constexpr size_t kMiB = size_t{1} << 20;

std::string Text(const CudaVersion& version) {
  return std::to_string(version.major) + "." + std::to_string(version.minor);
}

std::string GiB(size_t num_bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f GiB", static_cast<double>(num_bytes) / (1024.0 * 1024.0 * 1024.0));
  return text;
}

}  // namespace

std::optional<std::string> DeviceRefusal(const DeviceFacts& facts) {
  const std::string expected = "CUDA " + std::to_string(facts.toolkit.major) + ".0 or newer";
  if (!facts.driver) return "device: no NVIDIA driver on this machine; expected one that knows " + expected;
  if (facts.driver->major < facts.toolkit.major) {
    return "device: the NVIDIA driver is too old: it knows CUDA up to " + Text(*facts.driver) + ", expected " +
           expected;
  }
  if (facts.error) return "device: asking the NVIDIA driver for GPUs failed: " + *facts.error;
  if (facts.num_devices == 0) return "device: no GPU that this process may see (is CUDA_VISIBLE_DEVICES set?)";
  if (facts.capability.major < kMinCapability.major) {
    return "device: " + facts.name + " has compute capability " + Text(facts.capability) + ", expected " +
           Text(kMinCapability) + " or newer";
  }
  if (!facts.has_code) {
    return "device: this build has no kernels for " + facts.name + ", compute capability " + Text(facts.capability) +
           "; build it with that architecture";
  }
  return std::nullopt;
}

std::optional<std::string> MemoryRefusal(const MemoryNeed& need, const DeviceFacts& facts, int num_devices) {
  const size_t needed = need.weight_bytes + need.kv_bytes + need.pass_bytes;
  if (needed <= facts.free_bytes) return std::nullopt;
  const size_t missing = needed - facts.free_bytes;
  std::string text = "device: weights take " + GiB(need.weight_bytes) + ", K/V " + GiB(need.kv_bytes) +
                     " and a forward pass " + GiB(need.pass_bytes) + ", but " + facts.name + " has " +
                     GiB(facts.free_bytes) + " of " + GiB(facts.total_bytes) + " free: " + GiB(missing) +
                     " too little; ";
  if (need.weight_bytes >= facts.free_bytes) return text + "no --kv_cache_mb helps: the weights need a larger GPU";
  if (missing >= need.kv_bytes) return text + "no --kv_cache_mb alone helps: lower --max_step_rows, too";
  return text + "--kv_cache_mb may be at most " + std::to_string((need.kv_bytes - missing) / kMiB * num_devices);
}

}  // namespace foretoken::kernels::cuda
