// SPDX-License-Identifier: Apache-2.0
// The model that a forest runs. A row of a pass takes a token and, if the model reads the target's hidden states, a
// feature. Its logits are those of the token after it.
//
// Row j of a context is *given* its feature: the verifier made it from the target's hidden states. A row of a tree
// takes the output of the row before it instead, which is the model's own prediction of that feature. So the model
// keeps the output of every row at the row's slot.
//
// Two kinds stand behind it: a causal language model (transformer_draft.h), and the drafters of proposer_service/
// features, which read features.
//
// Errors: a pass beyond the limits is our own bug and ends the process.
// Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "common/model/expert_store.h"
#include "common/model/forward_batch.h"
#include "kernels/backend.h"
#include "kernels/check.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::proposer {

struct DraftPass {
  model::ForwardBatch batch;
  // For a model that reads features. Every row is in one of the two lists, and each list is in the order of the rows.
  std::vector<int32_t> given_rows;       // [G]
  std::vector<uint16_t> given_features;  // [G, W] bf16
  std::vector<int32_t> predicted_rows;   // [P]
  std::vector<int32_t> parent_slots;     // [P] the slot whose output is the feature of the row
  // [T] the number of rows since the last given row that had logits, on the row's own path: 0 for a given row.
  std::vector<int32_t> steps;
};

// The place of a row in one of these lists, which has it.
inline int32_t PlaceOf(std::span<const int32_t> rows, int32_t row) {
  const auto found = std::ranges::lower_bound(rows, row);
  FT_CHECK(found != rows.end() && *found == row);
  return static_cast<int32_t>(found - rows.begin());
}

class DraftModel {
 public:
  struct Limits {
    int32_t max_rows = 0;  // of a pass, all with logits
    int32_t max_positions = 0;
    int32_t num_blocks = 0;     // of the cache
    int64_t vocab_size = 0;     // V: the model knows the ids below it
    int32_t num_tokens = 0;     // ids below it may be guessed
    int64_t feature_width = 0;  // W; 0: the model reads no features
    // A row with as many steps, or with more, has no logits.
    int32_t max_steps = std::numeric_limits<int32_t>::max();
  };

  virtual ~DraftModel() = default;
  virtual const Limits& limits() const = 0;
  // Runs one pass. Returns the logits of batch.logit_rows, [n, V] f32, in memory of backend(), valid until the next
  // pass. An id that may not be drafted has minus infinity.
  virtual kernels::ConstTensorView Forward(const DraftPass& pass) = 0;
  // Moves what the model keeps of rows to other slots. Targets are no sources.
  virtual void Move(std::span<const kernels::KvMove> moves) = 0;
  virtual void Synchronize() = 0;
  // After Synchronize: for each row with logits, the model's own estimate of the chance that the target takes its
  // likeliest token. Empty: the model has none.
  virtual std::span<const float> confidences() const { return {}; }
  virtual kernels::Backend& backend() const = 0;
  // Of a model with experts.
  virtual model::ExpertUse expert_use() const { return {}; }
};

// A model that is ready to draft, and what its proposer says of itself.
struct Drafter {
  std::unique_ptr<DraftModel> model;
  ProposerDescription description;
};

}  // namespace foretoken::proposer
