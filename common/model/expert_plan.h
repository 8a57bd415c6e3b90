// SPDX-License-Identifier: Apache-2.0
// Decides at the start which experts a model keeps packed: all of them, or on each rank only as many as a bound holds.
//
//   const ExpertSource source = {.config = config, .opened = opened, .ranks = &ranks};
//   FT_ASSIGN_OR_RETURN(const ExpertPlan plan, PlanExperts(source, max_bytes));
//   if (!plan.keeps_all()) weights.experts = MakeExpertStore(source, plan, rank);
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/config/config.h"
#include "common/model/expert_store.h"
#include "common/model/weight_reader.h"
#include "common/parallel/rank_group.h"
#include "common/quantization/find_weight.h"

namespace foretoken::model {

// What the experts of all ranks are read from, and where they go. The ranks outlive the stores that are made of it.
struct ExpertSource {
  const ModelConfig& config;
  // The stores share its checkpoint, whose files they read as long as the model serves.
  const quantization::OpenedWeights& opened;
  parallel::RankGroup* ranks = nullptr;
};

struct ExpertPlan {
  std::vector<ExpertSizes> sizes;  // [R], or empty: all experts are kept
  size_t max_rank_bytes = 0;       // of the matrices that a rank keeps

  bool keeps_all() const { return sizes.empty(); }
};

// `max_bytes` bounds the experts' packed matrices on all ranks together, in equal shares; unset: no bound. To know the
// sizes it packs, where there is a bound, one expert of each kind.
// Errors: INVALID_ARGUMENT names --expert_memory_mb if a rank's share does not hold its largest expert, or not all of
// them where the backend keeps all. And as quantization::FindWeight.
absl::StatusOr<ExpertPlan> PlanExperts(const ExpertSource& source, std::optional<size_t> max_bytes);

// The store of a rank, for a plan that does not keep all.
std::unique_ptr<ExpertStore> MakeExpertStore(const ExpertSource& source, const ExpertPlan& plan, int32_t rank);

// Reads all experts for the reader's digest and its count, and packs none.
absl::Status DigestExperts(const ModelConfig& config, const quantization::OpenedWeights& opened, WeightReader& reader);

}  // namespace foretoken::model
