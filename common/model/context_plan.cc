// SPDX-License-Identifier: Apache-2.0
#include "common/model/context_plan.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/kv_cache.h"

namespace foretoken::model {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kDefaultContexts = 8;
constexpr int64_t kMaxDefaultKvBytes = int64_t{4} << 30;
constexpr int64_t kMinBlocks = 4;

int64_t NumBlocks(int64_t num_tokens) { return (num_tokens + kernels::kKvBlockSize - 1) / kernels::kKvBlockSize; }

}  // namespace

int64_t KvBytesPerBlock(const ModelConfig& model, kernels::KvCacheDtype dtype) {
  const kernels::KvCacheView block{.num_layers = static_cast<int32_t>(model.num_layers),
                                   .num_blocks = 1,
                                   .num_kv_heads = static_cast<int32_t>(model.num_kv_heads),
                                   .head_dim = static_cast<int32_t>(model.head_dim),
                                   .dtype = dtype};
  return static_cast<int64_t>(block.num_bytes());
}

int64_t KvMebibytes(const ModelConfig& model, kernels::KvCacheDtype dtype, int64_t num_tokens) {
  return (NumBlocks(num_tokens) * KvBytesPerBlock(model, dtype) + kMiB - 1) / kMiB;
}

absl::StatusOr<ContextPlan> PlanContext(const ContextOptions& options, const ModelConfig& model) {
  const int64_t wanted = options.max_context_tokens.value_or(model.max_position_embeddings);
  if (wanted > model.max_position_embeddings) {
    return absl::InvalidArgumentError(absl::StrCat("--max_context_tokens: expected at most the model's ",
                                                   model.max_position_embeddings, ", got ", wanted));
  }
  const int64_t block_bytes = KvBytesPerBlock(model, options.kv_cache_dtype);
  int64_t num_blocks = 0;
  if (options.kv_cache_mb) {
    num_blocks = *options.kv_cache_mb * kMiB / block_bytes;
  } else {
    num_blocks = std::min(kDefaultContexts * NumBlocks(wanted), kMaxDefaultKvBytes / block_bytes);
  }
  // Slots are 32-bit numbers, which bounds the blocks.
  num_blocks = std::min<int64_t>(num_blocks, std::numeric_limits<int32_t>::max() / kernels::kKvBlockSize);
  if (num_blocks < kMinBlocks) {
    constexpr int64_t kMinTokens = kMinBlocks * kernels::kKvBlockSize;
    return absl::InvalidArgumentError(absl::StrCat("--kv_cache_mb: expected at least ",
                                                   KvMebibytes(model, options.kv_cache_dtype, kMinTokens),
                                                   " MiB, which hold ", kMinTokens, " tokens of this model; got ",
                                                   options.kv_cache_mb.value_or(kMaxDefaultKvBytes / kMiB)));
  }
  // A context that the cache cannot hold is never served, so tables need not reach further.
  return ContextPlan{.max_context_tokens = static_cast<int32_t>(std::min(wanted, num_blocks * kernels::kKvBlockSize)),
                     .num_blocks = static_cast<int32_t>(num_blocks)};
}

}  // namespace foretoken::model
