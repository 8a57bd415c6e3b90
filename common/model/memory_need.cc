// SPDX-License-Identifier: Apache-2.0
#include "common/model/memory_need.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/model/shard.h"
#include "common/model/weight_names.h"
#include "kernels/ops.h"

namespace foretoken::model {
namespace {

constexpr int64_t kF32 = 4;
constexpr int64_t kBf16 = 2;

// The largest of the ranks' shares.
int64_t VocabularyShare(const ModelConfig& config, int32_t num_ranks) {
  return (config.vocab_size + num_ranks - 1) / num_ranks;
}

int64_t WeightBytes(const ModelConfig& config, int32_t num_ranks, const kernels::Backend& backend,
                    const KeptForms& forms) {
  ModelConfig narrow = RankConfig(config, num_ranks);
  narrow.vocab_size = VocabularyShare(config, num_ranks);
  const ModelWeightNames names = NameWeights(narrow);
  int64_t num_bytes = 0, num_expert_bytes = 0;
  std::set<std::string> routers, experts;
  for (const LayerWeightNames& layer : names.layers) {
    if (layer.router) routers.insert(layer.router->name);
    for (const WeightName& weight : ListExperts(layer)) experts.insert(weight.name);
  }
  for (const WeightName& weight : ListWeights(names)) {
    const bool is_vocabulary = weight.name == names.embed.name || weight.name == names.head.name;
    const kernels::Quantization quantization = routers.contains(weight.name) ? kernels::Quantization()
                                               : is_vocabulary               ? backend.head_quantization()
                                                                             : backend.weight_quantization();
    const auto found = forms.integers.find(weight.name);
    std::optional<kernels::IntegerGroups> kept;
    if (found != forms.integers.end()) kept = found->second;
    int64_t& sum = experts.contains(weight.name) ? num_expert_bytes : num_bytes;
    sum += weight.shape.rank == 1 ? weight.shape.num_elements() * kF32
                                  : static_cast<int64_t>(backend.MatrixBytes(weight.shape, quantization, kept));
  }
  // A device that must keep all experts refuses a smaller bound later.
  if (backend.keeps_all_experts() || !forms.max_expert_bytes) return num_bytes + num_expert_bytes;
  return num_bytes + std::min(num_expert_bytes, *forms.max_expert_bytes);
}

// Counts, row by row, the tensors that TransformerRank's constructor makes on rank 0. A batch's integers are too few to
// count. Beside these tensors a row is gathered for its experts: for one after another, or for all at once. With FP8 it
// adds the most that a product quantises, because products run one after another: a row, or all that are gathered of
// it.
int64_t PassBytes(const ModelConfig& config, int32_t num_ranks, const TransformerOptions& options,
                  const kernels::Backend& backend) {
  const ModelConfig narrow = RankConfig(config, num_ranks);
  const int64_t q_size = narrow.num_heads * narrow.head_dim, kv_size = narrow.num_kv_heads * narrow.head_dim;
  int64_t row_bytes = narrow.hidden_size * (kF32 + kBf16) + (q_size + 2 * kv_size) * kF32 + q_size * (kF32 + kBf16) +
                      std::max(narrow.intermediate_size, narrow.experts.shared_size) * (2 * kF32 + kBf16);
  const ExpertsConfig& experts = narrow.experts;
  const int64_t num_gathered = experts.num_experts == 0 ? 0 : backend.keeps_all_experts() ? experts.num_chosen : 1;
  if (backend.weight_quantization().weights == kernels::WeightQuantization::kFp8) {
    const int64_t widest = std::max({narrow.hidden_size, q_size, narrow.intermediate_size, experts.shared_size});
    row_bytes +=
        std::max(widest + kF32, num_gathered * (std::max(narrow.hidden_size, experts.intermediate_size) + kF32));
  }
  if (experts.num_experts > 0) {
    row_bytes += experts.num_experts * kF32 +
                 num_gathered * (experts.intermediate_size * (2 * kF32 + kBf16) + narrow.hidden_size * (kF32 + kBf16));
  }
  if (num_ranks > 1 || config.post_norms || config.residual_multiplier != 1 || experts.num_experts > 0) {
    row_bytes += num_ranks * narrow.hidden_size * kF32;
  }
  if (config.whole_qk_norm) row_bytes += num_ranks * 2 * kF32;
  int64_t logit_row_bytes = narrow.vocab_size * kF32;
  if (num_ranks > 1) {
    logit_row_bytes += num_ranks * VocabularyShare(config, num_ranks) * kF32;
  }
  const int64_t num_rotations = config.sliding_rope ? 2 : 1;
  const int64_t rope_bytes = num_rotations * options.max_positions * config.rotary_dim.value_or(config.head_dim) * kF32;
  return options.max_rows * row_bytes + options.max_logit_rows * logit_row_bytes + rope_bytes;
}

// What the ops of an asynchronous backend keep until the end of a step, beside the tensors of a pass: a copy of the
// logits of every row with penalties, a bias or a mask, and K and V of a token for every row that moves.
int64_t StepBytes(const ModelConfig& config, const TransformerOptions& options, const kernels::KvCacheView& kv) {
  const auto token_bytes =
      static_cast<int64_t>(size_t{2} * kv.num_layers * kv.bytes_per_block_layer() / kernels::kKvBlockSize);
  return options.max_logit_rows * ((config.vocab_size + 3) / 4 * 4) * kF32 + options.max_rows * token_bytes;
}

}  // namespace

// LoadWeights stacks q, k and v, and gate and up. A stack keeps integers if all of it has groups.
absl::StatusOr<KeptIntegers> FindKeptIntegers(const ModelConfig& config, const quantization::OpenedWeights& weights,
                                              const kernels::Backend& backend, int32_t num_ranks) {
  KeptIntegers kept;
  const auto add = [&](std::vector<const WeightName*> stack, const kernels::Quantization& quantization,
                       int64_t first_input) -> absl::Status {
    std::vector<kernels::StoredPart> parts;
    for (const WeightName* name : stack) {
      const WeightName stored = name->stored();
      FT_ASSIGN_OR_RETURN(const quantization::FoundWeight* found,
                          weights.Find(stored.name, stored.shape, config.quantization));
      if (found->stored == nullptr) return absl::OkStatus();
      parts.push_back({.matrix = found->stored.get(), .rows = {0, name->shape[0]}});
    }
    if (quantization.weights != kernels::WeightQuantization::kNone) return absl::OkStatus();
    const std::vector<kernels::IntegerGroups> groups = backend.KeptGroups(parts, first_input);
    for (size_t i = 0; i < groups.size(); ++i) kept.emplace(stack[i]->name, groups[i]);
    return absl::OkStatus();
  };
  const ModelWeightNames names = NameWeights(config);
  const kernels::Quantization layers = backend.weight_quantization(), head = backend.head_quantization();
  for (const LayerWeightNames& layer : names.layers) {
    FT_RETURN_IF_ERROR(add({&layer.q, &layer.k, &layer.v}, layers, 0));
    std::vector<ExpertWeightNames> mlps = layer.experts;
    if (!layer.gate.name.empty()) mlps.push_back({.gate_up = {layer.gate, layer.up}, .down = layer.down});
    std::vector<const WeightName*> by_inputs = {&layer.o};
    for (const ExpertWeightNames& mlp : mlps) {
      std::vector<const WeightName*> gate_up;
      for (const WeightName& part : mlp.gate_up) gate_up.push_back(&part);
      FT_RETURN_IF_ERROR(add(std::move(gate_up), layers, 0));
      by_inputs.push_back(&mlp.down);
    }
    for (const WeightName* matrix : by_inputs) {
      FT_RETURN_IF_ERROR(
          add({matrix}, layers, ShareOf(matrix->shape[1], {.rank = num_ranks - 1, .num_ranks = num_ranks}).begin));
    }
  }
  FT_RETURN_IF_ERROR(add({&names.embed}, head, 0));
  FT_RETURN_IF_ERROR(add({&names.head}, head, 0));
  return kept;
}

kernels::MemoryNeed LargestRankNeed(const ModelConfig& config, int32_t num_ranks, const TransformerOptions& options,
                                    int32_t num_blocks, const kernels::Backend& backend, const KeptForms& forms) {
  const ModelConfig narrow = RankConfig(config, num_ranks);
  const kernels::KvCacheView kv = {.num_layers = static_cast<int32_t>(narrow.num_layers),
                                   .num_blocks = num_blocks,
                                   .num_kv_heads = static_cast<int32_t>(narrow.num_kv_heads),
                                   .head_dim = static_cast<int32_t>(narrow.head_dim),
                                   .dtype = backend.kv_cache_dtype()};
  const int64_t step_bytes = backend.is_asynchronous() ? StepBytes(config, options, kv) : 0;
  return {.weight_bytes = static_cast<size_t>(WeightBytes(config, num_ranks, backend, forms)),
          .kv_bytes = kv.num_bytes(),
          .pass_bytes = static_cast<size_t>(PassBytes(config, num_ranks, options, backend) + step_bytes)};
}

}  // namespace foretoken::model
