// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/parts/drafter_setup.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/context_plan.h"
#include "kernels/dtype.h"
#include "kernels/make_backend.h"

namespace foretoken::proposer {
namespace {

absl::StatusOr<model::ContextPlan> PlanContexts(const DraftOptions& options, const PositionBytes& bytes) {
  constexpr int64_t kDefaultMb = 4096, kDefaultContexts = 8, kMinBlocks = 4, kMiB = 1 << 20;
  const int64_t block_bytes = (bytes.kv + bytes.output) * kernels::kKvBlockSize;
  int64_t num_blocks = options.kv_cache_mb.value_or(kDefaultMb) * kMiB / block_bytes;
  if (num_blocks < kMinBlocks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kv_cache_mb: expected at least ", (kMinBlocks * block_bytes + kMiB - 1) / kMiB, " MiB, which hold ",
        kMinBlocks * kernels::kKvBlockSize, " tokens of this drafter; got ", options.kv_cache_mb.value_or(kDefaultMb)));
  }
  const int64_t blocks_per_context = (bytes.max_positions + kernels::kKvBlockSize - 1) / kernels::kKvBlockSize;
  if (!options.kv_cache_mb.has_value()) num_blocks = std::min(num_blocks, kDefaultContexts * blocks_per_context);
  // Slots are 32-bit numbers, which bounds the blocks.
  num_blocks = std::min<int64_t>(num_blocks, std::numeric_limits<int32_t>::max() / kernels::kKvBlockSize);
  return model::ContextPlan{
      .max_context_tokens = static_cast<int32_t>(std::min(bytes.max_positions, num_blocks * kernels::kKvBlockSize)),
      .num_blocks = static_cast<int32_t>(std::max(num_blocks, kMinBlocks))};
}

// Whether the device has room for what the drafter needs, and for the caches of the plan.
absl::Status CheckRoom(const model::ContextPlan& plan, const DrafterNeeds& needs, const kernels::Backend& backend) {
  const int64_t cache_bytes = plan.num_blocks * (needs.bytes.kv + needs.bytes.output) * kernels::kKvBlockSize;
  const std::optional<std::string> refusal = backend.MemoryRefusal({.weight_bytes = needs.weight_bytes,
                                                                    .kv_bytes = static_cast<size_t>(cache_bytes),
                                                                    .pass_bytes = needs.pass_bytes});
  return refusal.has_value() ? absl::ResourceExhaustedError(*refusal) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeDrafterBackend(const DraftOptions& options) {
  kernels::MadeBackend made = kernels::MakeBackend({.device = options.device,
                                                    .num_threads = options.num_threads,
                                                    .isa = options.cpu_isa,
                                                    .quantization = options.quantization});
  if (made.backend == nullptr) return absl::InvalidArgumentError(made.error);
  return std::move(made.backend);
}

int32_t MaxRows(const DraftOptions& options) { return options.forest.max_tree_rows + options.forest.max_context_rows; }

PositionBytes BytesOf(const model::ModelConfig& blocks, const kernels::Backend& backend) {
  constexpr int64_t kBf16 = 2;
  return {.kv = model::KvBytesPerBlock(blocks, backend.kv_cache_dtype()) / kernels::kKvBlockSize,
          .output = blocks.hidden_size * kBf16,
          .max_positions = blocks.max_position_embeddings};
}

absl::StatusOr<DrafterPlan> PlanDrafter(const DraftOptions& options, const TargetFiles& target, DrafterNeeds needs,
                                        const kernels::Backend& backend) {
  FT_ASSIGN_OR_RETURN(const model::ContextPlan contexts, PlanContexts(options, needs.bytes));
  FT_RETURN_IF_ERROR(CheckRoom(contexts, needs, backend));
  DrafterPlan plan{.limits = {.max_rows = MaxRows(options),
                              .max_positions = contexts.max_context_tokens,
                              .num_blocks = contexts.num_blocks,
                              .vocab_size = needs.vocab_size,
                              .num_tokens = static_cast<int32_t>(target.num_tokens()),
                              .feature_width = needs.features.width()},
                   .description = DescribeFor(target, std::move(needs.method))};
  plan.description.features = std::make_shared<const speculation::TargetFeatures>(std::move(needs.features));
  return plan;
}

DrafterNeeds StepwiseNeeds(const TargetFiles& target, int64_t state_width, size_t weight_bytes, std::string method) {
  constexpr int64_t kBf16 = 2;
  return {.method = std::move(method),
          .bytes = {.output = state_width * kBf16, .max_positions = target.config.max_position_embeddings},
          .weight_bytes = weight_bytes,
          .features = {.target_hidden_size = target.config.hidden_size}};
}

absl::StatusOr<speculation::TargetFeatures> ReadProjectedFeatures(const FeatureLayers& layers, int64_t num_outputs,
                                                                  const TargetFiles& target,
                                                                  const DrafterTensors& tensors) {
  speculation::TargetFeatures features{.layers = layers.layers, .target_hidden_size = target.config.hidden_size};
  const int64_t width = static_cast<int64_t>(features.layers.size()) * features.target_hidden_size;
  FT_ASSIGN_OR_RETURN(const kernels::Shape shape, tensors.ShapeOf("fc.weight", 2));
  if (shape[1] != width) {
    return absl::InvalidArgumentError(absl::StrCat(tensors.directory(), ": tensor fc.weight: expected ", width,
                                                   " inputs, for the hidden states ", Describe(layers), ", got ",
                                                   shape[1]));
  }
  FT_ASSIGN_OR_RETURN(const std::vector<float> fc, tensors.Floats({"fc.weight", kernels::Shape(num_outputs, width)}));
  features.projection.emplace(speculation::FeatureProjection{.num_outputs = num_outputs});
  for (const float value : fc) features.projection->weight.push_back(kernels::Bf16FromFloat(value));
  return features;
}

absl::Status CheckVocabulary(const model::JsonFields& config, int64_t vocab_size, const TargetFiles& target) {
  if (vocab_size >= target.num_tokens() && vocab_size <= target.config.vocab_size) return absl::OkStatus();
  return config.Error("vocab_size", "expects ", target.num_tokens(), " to ", target.config.vocab_size,
                      ", as many as the target has, got ", vocab_size);
}

}  // namespace foretoken::proposer
