// SPDX-License-Identifier: Apache-2.0
// Reads the input as a config.json and as a generation_config.json. An accepted configuration has sizes that the rest
// of the program can compute with.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/model/config/config.h"
#include "common/model/config/generation_config.h"
#include "common/model/config/rope.h"
#include "common/model/memory_need.h"
#include "kernels/check.h"
#include "kernels/make_backend.h"

namespace foretoken::model {
namespace {

void CheckSizes(const ModelConfig& config) {
  FT_CHECK(config.hidden_size > 0 && config.intermediate_size > 0 && config.vocab_size > 0);
  FT_CHECK(config.num_kv_heads > 0 && config.num_heads % config.num_kv_heads == 0);
  FT_CHECK(config.head_dim > 0 && config.head_dim % 2 == 0);
  FT_CHECK(config.max_position_embeddings > 0);
  FT_CHECK(std::isfinite(config.rms_norm_eps) && config.rms_norm_eps > 0);
  FT_CHECK(config.sliding_windows.size() == static_cast<size_t>(config.num_layers));
  for (const std::optional<int64_t>& window : config.sliding_windows) FT_CHECK(!window.has_value() || *window > 0);
  static const std::unique_ptr<kernels::Backend> backend = kernels::MakeBackend({.num_threads = 1}).backend;
  LargestRankNeed(config, /*num_ranks=*/1, {.max_rows = 16, .max_logit_rows = 16, .max_positions = 64},
                  /*num_blocks=*/4, *backend);
  const RopeFrequencies frequencies =
      ComputeRopeFrequencies(config.rope, config.rotary_dim.value_or(config.head_dim), config.max_position_embeddings);
  FT_CHECK(frequencies.inverse.size() == static_cast<size_t>(config.rotary_dim.value_or(config.head_dim) / 2));
  FT_CHECK(config.rotates.empty() || config.rotates.size() == static_cast<size_t>(config.num_layers));
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    FT_CHECK(config.turned_dims(layer) >= 0 && config.turned_dims(layer) <= config.head_dim);
    FT_CHECK(config.has_experts(layer) ? config.mlp_size(layer) >= 0 : config.mlp_size(layer) > 0);
  }
  FT_CHECK(config.experts.num_experts == 0 || config.experts.num_chosen <= config.experts.num_experts);
  MakeRopeTables(frequencies, /*max_positions=*/2);
}

}  // namespace
}  // namespace foretoken::model

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = foretoken::model::ParseModelConfig(text, "config.json");
  if (config.ok()) foretoken::model::CheckSizes(*config);
  const auto defaults = foretoken::model::ParseGenerationConfig(text, "generation_config.json");
  if (!defaults.ok()) return 0;
  FT_CHECK(!defaults->temperature.has_value() || *defaults->temperature >= 0);
  FT_CHECK(!defaults->top_k.has_value() || *defaults->top_k >= 0);
  FT_CHECK(!defaults->top_p.has_value() || (*defaults->top_p > 0 && *defaults->top_p <= 1));
  FT_CHECK(!defaults->min_p.has_value() || (*defaults->min_p >= 0 && *defaults->min_p <= 1));
  FT_CHECK(!defaults->repetition_penalty.has_value() || *defaults->repetition_penalty > 0);
  return 0;
}
