// SPDX-License-Identifier: Apache-2.0
// Decides how long contexts may be and how many K/V blocks there are, from the flags and the limits of the model.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "common/model/config/config.h"
#include "kernels/kv_cache.h"

namespace foretoken::model {

struct ContextOptions {
  std::optional<int64_t> kv_cache_mb;         // MiB of K/V; unset: 8 full contexts, at most 4 GiB
  std::optional<int32_t> max_context_tokens;  // unset: the model's longest
  kernels::KvCacheDtype kv_cache_dtype = kernels::KvCacheDtype::kBf16;
};

struct ContextPlan {
  int32_t max_context_tokens = 0;
  int32_t num_blocks = 0;
};

// What kKvBlockSize tokens take in all layers of the model.
int64_t KvBytesPerBlock(const ModelConfig& model, kernels::KvCacheDtype dtype);

// The MiB of K/V cache that hold a context of so many tokens, rounded up.
int64_t KvMebibytes(const ModelConfig& model, kernels::KvCacheDtype dtype, int64_t num_tokens);

// INVALID_ARGUMENT names the flag: a context longer than the model's, or a K/V cache that does not hold 64 tokens.
absl::StatusOr<ContextPlan> PlanContext(const ContextOptions& options, const ModelConfig& model);

}  // namespace foretoken::model
