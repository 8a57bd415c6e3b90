// SPDX-License-Identifier: Apache-2.0
#include "kernels/make_backend.h"

#include <sched.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "kernels/cpu/base/isa.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu_quota.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/thread_communicator.h"

namespace foretoken::kernels {

int NumCpuThreads(int num_threads) {
  if (num_threads != 0) return num_threads;
  cpu_set_t cores;
  const bool is_known = sched_getaffinity(0, sizeof(cores), &cores) == 0;
  const int num_cores = is_known ? CPU_COUNT(&cores) : static_cast<int>(std::thread::hardware_concurrency());
  const double quota = CpuQuota().value_or(num_cores);
  return std::max(static_cast<int>(std::min<double>(quota, num_cores)), 1);
}

namespace {

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
  const int num_threads = NumCpuThreads(options.num_threads);
  const int rank_threads = num_threads / options.num_ranks + (options.rank < num_threads % options.num_ranks ? 1 : 0);
  const auto quantization = [&](const std::string& weights) {
    const WeightQuantization kept_as = weights == "int8"   ? WeightQuantization::kInt8
                                       : weights == "int4" ? WeightQuantization::kInt4
                                                           : WeightQuantization::kNone;
    return Quantization(kept_as, options.quantization.group_size, options.quantization.activations == "int8");
  };
  return {std::make_unique<cpu::CpuBackend>(
              std::move(*pin), std::max(rank_threads, 1),
              cpu::CpuBackendOptions{.num_ranks = options.num_ranks,
                                     .weights = quantization(options.quantization.weights),
                                     .head = quantization(options.quantization.head),
                                     .kv_cache = KvCacheDtypeOf(options.quantization.kv_cache)}),
          ""};
}

// What is wrong with the options of quantisation; empty: nothing.
std::string QuantizationError(const BackendOptions& options) {
  const auto error = [](const std::string& name, const std::string& expected, const std::string& given) {
    return name + ": expected " + expected + ", got " + given;
  };
  const bool is_cpu = options.device == "cpu";
  const std::string &weights = options.quantization.weights, &head = options.quantization.head;
  const auto is_integer = [](const std::string& name) { return name == "int8" || name == "int4"; };
  if (weights != "none" && weights != "fp8" && !is_integer(weights)) {
    return error("weight_quantization", "none, fp8, int8 or int4", '"' + weights + '"');
  }
  if (weights == "fp8" && is_cpu) return "weight_quantization: fp8 needs the device cuda, got cpu";
  if (head != "none" && !is_integer(head)) return error("head_quantization", "none, int8 or int4", '"' + head + '"');
  const int group_size = options.quantization.group_size;
  if (group_size != 32 && group_size != 64 && group_size != 128) {
    return error("weight_group_size", "32, 64 or 128", std::to_string(group_size));
  }
  const std::string& activations = options.quantization.activations;
  if (activations != "none" && activations != "int8") {
    return error("activation_quantization", "none or int8", '"' + activations + '"');
  }
  if (activations == "int8" && !is_cpu) {
    return "activation_quantization: int8 needs the device cpu, got " + options.device;
  }
  const std::string& kv_cache = options.quantization.kv_cache;
  if (kv_cache != "bf16" && kv_cache != "int8" && kv_cache != "fp8") {
    return error("kv_cache_dtype", "bf16, int8 or fp8", '"' + kv_cache + '"');
  }
  return "";
}

}  // namespace

std::vector<std::string> SupportedCpuIsas() {
  std::vector<std::string> names;
  for (const cpu::Isa isa : cpu::SupportedIsas()) names.push_back(cpu::Name(isa));
  return names;
}

MadeBackend MakeBackend(const BackendOptions& options) {
  if (std::string error = QuantizationError(options); !error.empty()) return {nullptr, std::move(error)};
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
