// SPDX-License-Identifier: Apache-2.0
#include "common/model/shard.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace foretoken::model {

kernels::IndexRange ShareOf(int64_t count, const Shard& shard) {
  return {.begin = count * shard.rank / shard.num_ranks, .end = count * (shard.rank + 1) / shard.num_ranks};
}

absl::Status CheckTensorParallel(const ModelConfig& config, int32_t num_ranks) {
  const std::pair<const char*, int64_t> divided[] = {{"num_attention_heads", config.num_heads},
                                                     {"num_key_value_heads", config.num_kv_heads},
                                                     {"intermediate_size", config.intermediate_size},
                                                     {"moe_intermediate_size", config.experts.intermediate_size}};
  for (const auto& [name, size] : divided) {
    if (num_ranks >= 1 && size % num_ranks == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--tensor_parallel: expected a divisor of the model's ", name, " ", size, ", got ", num_ranks));
  }
  if (num_ranks <= config.vocab_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--tensor_parallel: expected at most the model's vocab_size ",
                                                 config.vocab_size, ", got ", num_ranks));
}

ModelConfig RankConfig(const ModelConfig& config, int32_t num_ranks) {
  ModelConfig narrow = config;
  narrow.num_heads /= num_ranks;
  narrow.num_kv_heads /= num_ranks;
  narrow.intermediate_size /= num_ranks;
  narrow.experts.intermediate_size /= num_ranks;
  narrow.experts.shared_size /= num_ranks;
  return narrow;
}

}  // namespace foretoken::model
