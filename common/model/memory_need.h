// SPDX-License-Identifier: Apache-2.0
// Computes the device memory that a model's ranks need, before any of it is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/model/config/config.h"
#include "common/model/transformer_rank.h"
#include "common/quantization/find_weight.h"
#include "kernels/backend.h"
#include "kernels/stored_matrix.h"

namespace foretoken::model {

// The matrices of a checkpoint whose integers every rank's backend keeps as they are, by their names.
using KeptIntegers = absl::flat_hash_map<std::string, kernels::IntegerGroups>;
absl::StatusOr<KeptIntegers> FindKeptIntegers(const ModelConfig& config, const quantization::OpenedWeights& weights,
                                              const kernels::Backend& backend, int32_t num_ranks);

// How a model's matrices are kept, beside what the backend says.
struct KeptForms {
  KeptIntegers integers;
  std::optional<int64_t> max_expert_bytes;  // of a rank; unset: all experts are kept
};

// The need of the rank that needs most: its matrices, the K/V of `num_blocks` blocks, and the tensors of a
// TransformerRank and of its products. Every rank's backend is like this one.
kernels::MemoryNeed LargestRankNeed(const ModelConfig& config, int32_t num_ranks, const TransformerOptions& options,
                                    int32_t num_blocks, const kernels::Backend& backend, const KeptForms& forms = {});

}  // namespace foretoken::model
