// SPDX-License-Identifier: Apache-2.0
#include "client/commands/offline_flags.h"

#include <cstdint>
#include <optional>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client/commands/model_flag.h"

ABSL_FLAG(std::string, device, "cpu", "The device that computes: cpu, or cuda if the build has it");
ABSL_FLAG(std::string, cpu_isa, "auto",
          "auto, or one of amx, avx512_bf16, avx512_vnni, avx512, avx_vnni, avx2, baseline");
ABSL_FLAG(std::string, weight_quantization, "none",
          "Of the layers' weights: none (bf16, or as quantised in the file), int8 or int4, on cuda also fp8");
ABSL_FLAG(std::string, head_quantization, "none", "Of the embedding and the head: none, int8 or int4");
ABSL_FLAG(int32_t, weight_group_size, 32, "Inputs that share a scale, for int8 and int4: 32, 64 or 128");
ABSL_FLAG(std::string, activation_quantization, "none",
          "none (bf16), or on cpu int8, for what int8 and int4 weights multiply");
ABSL_FLAG(std::string, kv_cache_dtype, "bf16", "Of K and V: bf16, int8 or fp8 (e4m3)");
ABSL_FLAG(int32_t, threads, 0,
          "Threads of the CPU backend; 0: one per core, but no more than the quota of a container");
ABSL_FLAG(int32_t, tensor_parallel, 1, "Ranks that share every layer of the model");
ABSL_FLAG(std::optional<int64_t>, expert_memory_mb, std::nullopt,
          "MiB for the packed experts of a model with experts, over all ranks; the others are read from its files when "
          "tokens choose them; unset: all experts are kept");
ABSL_FLAG(std::optional<int32_t>, max_context_tokens, std::nullopt,
          "The longest context of the server whose model this is; it decides the angles of LongRoPE; unset: the "
          "server's default");

namespace foretoken::client {
namespace {

constexpr int64_t kMaxMegabytes = int64_t{1} << 30;

}  // namespace

absl::StatusOr<OfflineModel> OfflineModelFromFlags() {
  const std::string path = absl::GetFlag(FLAGS_model);
  if (path.empty()) return absl::InvalidArgumentError("--model: expected the directory of a checkpoint");
  const std::optional<int64_t> expert_memory_mb = absl::GetFlag(FLAGS_expert_memory_mb);
  if (expert_memory_mb && (*expert_memory_mb < 1 || *expert_memory_mb > kMaxMegabytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--expert_memory_mb: expected 1 to ", kMaxMegabytes, ", got ", *expert_memory_mb));
  }
  const std::optional<int32_t> max_context_tokens = absl::GetFlag(FLAGS_max_context_tokens);
  if (max_context_tokens && *max_context_tokens < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max_context_tokens: expected at least 2, got ", *max_context_tokens));
  }
  return OfflineModel{.path = path,
                      .backend = {.device = absl::GetFlag(FLAGS_device),
                                  .num_threads = absl::GetFlag(FLAGS_threads),
                                  .isa = absl::GetFlag(FLAGS_cpu_isa),
                                  .quantization = {.weights = absl::GetFlag(FLAGS_weight_quantization),
                                                   .head = absl::GetFlag(FLAGS_head_quantization),
                                                   .group_size = absl::GetFlag(FLAGS_weight_group_size),
                                                   .activations = absl::GetFlag(FLAGS_activation_quantization),
                                                   .kv_cache = absl::GetFlag(FLAGS_kv_cache_dtype)}},
                      .tensor_parallel = absl::GetFlag(FLAGS_tensor_parallel),
                      .expert_memory_mb = expert_memory_mb,
                      .max_context_tokens = max_context_tokens};
}

bool QuantizesAtLoad() {
  return absl::GetFlag(FLAGS_weight_quantization) != "none" || absl::GetFlag(FLAGS_head_quantization) != "none" ||
         absl::GetFlag(FLAGS_activation_quantization) != "none" || absl::GetFlag(FLAGS_kv_cache_dtype) != "bf16";
}

std::string Describe(const OfflineModel& options, const model::RunnableModel& model) {
  const bool is_long = model::TakesLongDivisors(model.config.rope, model.transformer->options().max_positions);
  return absl::StrCat(options.path, ", ", model.transformer->backend().Describe(), is_long ? " rope-long" : "");
}

}  // namespace foretoken::client
