// SPDX-License-Identifier: Apache-2.0
#include "common/model/expert_plan.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/model_weights.h"
#include "common/model/weight_names.h"
#include "kernels/stored_matrix.h"

namespace foretoken::model {
namespace {

using quantization::FoundWeight;

// The integers that a stack of matrices could keep, as text; empty: none. All experts have the same shapes, so two
// experts with the same integers take the same memory.
absl::StatusOr<std::string> KindOf(std::span<const WeightName> stack, const ModelConfig& config,
                                   const quantization::OpenedWeights& opened) {
  std::string kind;
  for (const WeightName& name : stack) {
    const WeightName stored = name.stored();
    FT_ASSIGN_OR_RETURN(const FoundWeight* found, opened.Find(stored.name, stored.shape, config.quantization));
    const std::optional<kernels::IntegerGroups> groups =
        found->stored == nullptr ? std::nullopt : found->stored->groups();
    if (!groups.has_value()) return "";
    absl::StrAppend(&kind, groups->bits, " ", groups->group_size, " ", groups->has_offsets, " ",
                    static_cast<int>(groups->scale_dtype), " ", groups->blocks ? groups->blocks->num_groups : 0, " ",
                    groups->is_e2m1, ", ");
  }
  return kind;
}

absl::StatusOr<ExpertSizes> MeasureExperts(const ExpertSource& source, const Shard& shard) {
  const ExpertStore::Pack pack =
      ExpertPacker(source.config, source.opened.checkpoint(), source.ranks->backend(shard.rank), shard);
  const ModelWeightNames names = NameWeights(source.config);
  ExpertSizes sizes(names.layers.size());
  std::map<std::string, ExpertSize> sizes_by_kind;
  for (size_t layer = 0; layer < names.layers.size(); ++layer) {
    for (const ExpertWeightNames& expert : names.layers[layer].experts) {
      FT_ASSIGN_OR_RETURN(const std::string gate_up, KindOf(expert.gate_up, source.config, source.opened));
      FT_ASSIGN_OR_RETURN(const std::string down, KindOf(std::span(&expert.down, 1), source.config, source.opened));
      const auto [size, is_new] = sizes_by_kind.try_emplace(absl::StrCat(gate_up, "; ", down));
      const auto expert_idx = static_cast<int32_t>(sizes[layer].size());
      if (is_new) size->second = SizeOf(pack(static_cast<int32_t>(layer), expert_idx));
      sizes[layer].push_back(size->second);
    }
  }
  return sizes;
}

struct RankBytes {
  size_t all = 0;
  size_t largest = 0;
};

// Of the rank that needs most.
RankBytes MostBytes(std::span<const ExpertSizes> ranks) {
  RankBytes most;
  for (const ExpertSizes& sizes : ranks) {
    size_t all = 0;
    for (const std::vector<ExpertSize>& layer : sizes) {
      for (const ExpertSize& size : layer) {
        all += size.num_bytes;
        most.largest = std::max(most.largest, size.num_bytes);
      }
    }
    most.all = std::max(most.all, all);
  }
  return most;
}

// Whole rows of a tensor at a time, so that few of its pages are in memory together.
void ReadRows(const quantization::NamedTensor& named, WeightReader& reader) {
  constexpr size_t kPieceBytes = size_t{4} << 20;
  const weights::StoredTensor& tensor = *named.tensor;
  const size_t num_rows = tensor.shape.size() < 2 ? 1 : static_cast<size_t>(tensor.shape[0]);
  const size_t row_bytes = tensor.bytes.size() / num_rows;
  const size_t piece_bytes = std::max<size_t>(kPieceBytes / row_bytes, 1) * row_bytes;
  for (size_t begin = 0; begin < tensor.bytes.size(); begin += piece_bytes) {
    const std::span<const std::byte> piece =
        tensor.bytes.subspan(begin, std::min(piece_bytes, tensor.bytes.size() - begin));
    reader.Fetch(piece.data(), piece.size());
    reader.Release({.begin = piece.data(), .num_bytes = piece.size(), .num_own_bytes = piece.size()});
  }
  weights::ReleasePages(tensor.bytes.data(), tensor.bytes.size());
}

}  // namespace

absl::StatusOr<ExpertPlan> PlanExperts(const ExpertSource& source, std::optional<size_t> max_bytes) {
  if (!max_bytes.has_value() || source.config.experts.num_experts == 0) return ExpertPlan();
  FT_RETURN_IF_ERROR(CheckWeights(source.config, source.opened));
  const int32_t num_ranks = source.ranks->num_ranks();
  std::vector<absl::StatusOr<ExpertSizes>> measured(num_ranks);
  source.ranks->Run([&](int rank) { measured[rank] = MeasureExperts(source, {.rank = rank, .num_ranks = num_ranks}); });
  ExpertPlan plan = {.max_rank_bytes = *max_bytes / num_ranks};
  for (absl::StatusOr<ExpertSizes>& sizes : measured) {
    FT_ASSIGN_OR_RETURN(plan.sizes.emplace_back(), std::move(sizes));
  }
  const RankBytes most = MostBytes(plan.sizes);
  const bool keeps_all = source.ranks->backend(0).keeps_all_experts();
  const size_t least_bytes = keeps_all ? most.all : most.largest;
  if (least_bytes > plan.max_rank_bytes) {
    constexpr size_t kMiB = size_t{1} << 20;
    return absl::InvalidArgumentError(absl::StrCat(
        "--expert_memory_mb: expected at least ", (least_bytes * num_ranks + kMiB - 1) / kMiB, ", which hold ",
        keeps_all ? "all experts, as this device must" : "the model's largest expert", ", got ", *max_bytes / kMiB));
  }
  if (most.all <= plan.max_rank_bytes) plan.sizes.clear();
  return plan;
}

std::unique_ptr<ExpertStore> MakeExpertStore(const ExpertSource& source, const ExpertPlan& plan, int32_t rank) {
  const Shard shard = {.rank = rank, .num_ranks = source.ranks->num_ranks()};
  return std::make_unique<ExpertStore>(ExpertStore::Bound{
      .max_bytes = plan.max_rank_bytes,
      .sizes = plan.sizes[rank],
      .pack = ExpertPacker(source.config, source.opened.checkpoint(), source.ranks->backend(rank), shard)});
}

absl::Status DigestExperts(const ModelConfig& config, const quantization::OpenedWeights& opened, WeightReader& reader) {
  for (const LayerWeightNames& layer : NameWeights(config).layers) {
    for (const WeightName& name : ListExperts(layer)) {
      FT_ASSIGN_OR_RETURN(const FoundWeight* found, opened.Find(name.name, name.shape, config.quantization));
      if (name.shape.rank == 1) {
        reader.Count(found->num_bytes());
        continue;
      }
      for (const quantization::NamedTensor& named : found->tensors) ReadRows(named, reader);
    }
  }
  return absl::OkStatus();
}

}  // namespace foretoken::model
