// SPDX-License-Identifier: Apache-2.0
// What a drafter takes from the target's checkpoint: its sizes, its tokenizer, and the tensors that the drafter's own
// file lacks. No other tensor is read.
//
// Errors: as LoadModelConfig, Tokenizer::Load, Checkpoint::Open and FindWeight, with the option "target" in front.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "common/model/config/config.h"
#include "common/quantization/found_weight.h"
#include "common/tokenizer/tokenizer.h"
#include "common/weights/checkpoint.h"
#include "kernels/backend.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::proposer {

struct TargetFiles {
  model::ModelConfig config;
  tokenizer::Tokenizer tokenizer;
  weights::Checkpoint checkpoint;

  // All ids that both the tokenizer and the target know are below this number.
  int64_t num_tokens() const {
    return std::min(static_cast<int64_t>(tokenizer.vocabulary().num_ids()), config.vocab_size);
  }
  // [V, E], in the form in which the checkpoint has them, which they refer to.
  absl::StatusOr<quantization::FoundWeight> Embedding() const;
  absl::StatusOr<quantization::FoundWeight> Head() const;
};

// Packs rows of one of these two onto the drafter's backend. A form of integers is kept, as the target itself keeps it.
std::unique_ptr<kernels::Weight> PrepareRows(const quantization::FoundWeight& weight,
                                             std::span<const kernels::IndexRange> rows, kernels::Backend& backend);

absl::StatusOr<TargetFiles> OpenTarget(const std::string& directory);

// The sizes of the target that a head must fit.
struct TargetSizes {
  int64_t hidden_size = 0;    // of the target, Ht
  int64_t num_layers = 0;     // L
  int64_t vocab_size = 0;     // V, as padded in the target's weights
  int64_t num_tokens = 0;     // ids that the tokenizer and the target know are below it
  int64_t max_positions = 0;  // of the target: a head's own limit is often too small
};

TargetSizes SizesOf(const TargetFiles& target);

// The description of a drafter that works with this target.
ProposerDescription DescribeFor(const TargetFiles& target, std::string method);

}  // namespace foretoken::proposer
