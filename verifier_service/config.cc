// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/config.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace foretoken::verifier {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kDefaultContexts = 8;
constexpr int64_t kMaxDefaultKvBytes = int64_t{4} << 30;
constexpr int64_t kMinBlocks = 4;

template <typename... Parts>
absl::Status Invalid(absl::string_view flag, const Parts&... why) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", why...));
}

absl::Status CheckAddress(absl::string_view flag, const std::string& address) {
  const size_t colon = address.rfind(':');
  const bool has_port = colon != std::string::npos && colon + 1 < address.size() &&
                        address.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  if (colon != 0 && has_port) return absl::OkStatus();
  return Invalid(flag, "expected HOST:PORT, got \"", address, "\"");
}

absl::Status CheckRange(absl::string_view flag, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return Invalid(flag, "expected ", least, " to ", most, ", got ", value);
}

int64_t KvBytesPerBlock(const model::ModelConfig& model) {
  constexpr int64_t kBytesPerElement = 2;  // bf16
  return 2 * model.num_layers * model.num_kv_heads * model.head_dim * kernels::kKvBlockSize * kBytesPerElement;
}

}  // namespace

absl::Status Validate(const Config& config) {
  constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();
  if (config.model_directory.empty()) return Invalid("model", "expected a directory with a checkpoint, got none");
  FT_RETURN_IF_ERROR(CheckAddress("listen", config.listen_address));
  if (!config.metrics_address.empty()) FT_RETURN_IF_ERROR(CheckAddress("metrics_listen", config.metrics_address));
  FT_RETURN_IF_ERROR(CheckRange("threads", config.num_threads, 0, 4096));
  if (config.kv_cache_mb) FT_RETURN_IF_ERROR(CheckRange("kv_cache_mb", *config.kv_cache_mb, 1, kMaxInt));
  if (config.max_context_tokens) {
    FT_RETURN_IF_ERROR(CheckRange("max_context_tokens", *config.max_context_tokens, 2, kMaxInt));
  }
  FT_RETURN_IF_ERROR(CheckRange("max_receive_bytes", config.max_receive_bytes, kMiB, kMaxInt));
  FT_RETURN_IF_ERROR(CheckRange("max_prompt_bytes", config.max_prompt_bytes, 1, config.max_receive_bytes));
  if (config.drain_grace < absl::ZeroDuration() || config.drain_grace > absl::Hours(24)) {
    return Invalid("drain_grace", "expected 0 to 24h, got ", absl::FormatDuration(config.drain_grace));
  }
  const absl::Status engine = Validate(config.engine);
  if (!engine.ok()) return absl::InvalidArgumentError(absl::StrCat("--", engine.message()));
  return absl::OkStatus();
}

std::string BaseName(const std::string& directory) {
  const size_t end = directory.find_last_not_of('/');
  if (end == std::string::npos) return directory;
  const size_t slash = directory.find_last_of('/', end);
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  return directory.substr(begin, end + 1 - begin);
}

absl::StatusOr<ContextPlan> PlanContext(const Config& config, const model::ModelConfig& model) {
  const int64_t wanted = config.max_context_tokens.value_or(model.max_position_embeddings);
  if (wanted > model.max_position_embeddings) {
    return Invalid("max_context_tokens", "expected at most the model's ", model.max_position_embeddings, ", got ",
                   wanted);
  }
  const int64_t block_bytes = KvBytesPerBlock(model);
  int64_t num_blocks = 0;
  if (config.kv_cache_mb) {
    num_blocks = *config.kv_cache_mb * kMiB / block_bytes;
  } else {
    const int64_t blocks_per_context = (wanted + kernels::kKvBlockSize - 1) / kernels::kKvBlockSize;
    num_blocks = std::min(kDefaultContexts * blocks_per_context, kMaxDefaultKvBytes / block_bytes);
  }
  // Slots are 32-bit numbers.
  num_blocks = std::min<int64_t>(num_blocks, std::numeric_limits<int32_t>::max() / kernels::kKvBlockSize);
  if (num_blocks < kMinBlocks) {
    return Invalid("kv_cache_mb", "expected at least ", (kMinBlocks * block_bytes + kMiB - 1) / kMiB,
                   " MiB, which hold ", kMinBlocks * kernels::kKvBlockSize, " tokens of this model; got ",
                   config.kv_cache_mb.value_or(kMaxDefaultKvBytes / kMiB));
  }
  // What the cache cannot hold is never served, so no table need reach as far.
  return ContextPlan{.max_context_tokens = static_cast<int32_t>(std::min(wanted, num_blocks * kernels::kKvBlockSize)),
                     .num_blocks = static_cast<int32_t>(num_blocks)};
}

}  // namespace foretoken::verifier
