// SPDX-License-Identifier: Apache-2.0
#include "kernels/make_backend.h"

#include <sched.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "kernels/cpu/base/isa.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/thread_communicator.h"

namespace foretoken::kernels {
namespace {

int NumUsableCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return std::max(CPU_COUNT(&cores), 1);
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

std::string Joined(const std::vector<std::string>& names) {
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : ", ") + name;
  return joined;
}

MadeBackend MakeCpuBackend(const BackendOptions& options) {
  if (options.num_threads < 0) {
    return {nullptr, "threads: expected 0 (one per core) or more, got " + std::to_string(options.num_threads)};
  }
  const std::vector<std::string> supported = SupportedCpuIsas();
  const std::string name = options.isa == "auto" ? supported.front() : options.isa;
  const std::optional<cpu::Isa> isa = cpu::IsaFromName(name);
  if (!isa || std::ranges::find(supported, name) == supported.end()) {
    return {nullptr, "isa: expected auto or one of this machine's " + Joined(supported) + ", got \"" + name + "\""};
  }
  std::optional<cpu::IsaPin> pin = cpu::IsaPin::Make(*isa);
  if (!pin) return {nullptr, "isa: a process uses one at a time, and another backend does not use " + name};
  const int num_threads = options.num_threads != 0 ? options.num_threads : NumUsableCores();
  const int rank_threads = num_threads / options.num_ranks + (options.rank < num_threads % options.num_ranks ? 1 : 0);
  return {std::make_unique<cpu::CpuBackend>(std::move(*pin), std::max(rank_threads, 1), options.num_ranks), ""};
}

}  // namespace

std::vector<std::string> SupportedCpuIsas() {
  std::vector<std::string> names;
  for (const cpu::Isa isa : cpu::SupportedIsas()) names.push_back(cpu::Name(isa));
  return names;
}

MadeBackend MakeBackend(const BackendOptions& options) {
  const std::string& quantization = options.weight_quantization;
  if (quantization != "none" && quantization != "fp8") {
    return {nullptr, "weight_quantization: expected none or fp8, got \"" + quantization + "\""};
  }
  if (quantization == "fp8" && options.device == "cpu") {
    return {nullptr, "weight_quantization: fp8 needs the device cuda, got cpu"};
  }
  if (options.device == "cpu") return MakeCpuBackend(options);
#ifdef FORETOKEN_CUDA
  if (options.device == "cuda") return cuda::MakeBackend(options);
  return {nullptr, "device: expected cpu or cuda, got \"" + options.device + "\""};
#else
  return {nullptr, "device: this build has only cpu (./dev cuda makes one with cuda), got \"" + options.device + "\""};
#endif
}

MadeCommunicators MakeCommunicators([[maybe_unused]] const std::string& device, std::span<Backend* const> backends) {
#ifdef FORETOKEN_CUDA
  if (device == "cuda" && cuda::HaveOwnDevices(backends)) return cuda::MakeCommunicators(backends);
#endif
  return {MakeThreadCommunicators(backends), ""};
}

}  // namespace foretoken::kernels
