// SPDX-License-Identifier: Apache-2.0
// The two ends of a drafter, its embedding and its LM head. Many drafters guess only a part of the target's vocabulary:
// their heads have rows for Vd of the V ids, and all other ids get minus infinity.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/json_fields.h"
#include "common/tensor/tensor.h"
#include "kernels/backend.h"
#include "proposer_service/features/parts/drafter_tensors.h"
#include "proposer_service/features/parts/target_files.h"

namespace foretoken::proposer {

// What becomes of a product with the head: l becomes c tanh(s l / c), or s l.
struct LogitForm {
  float scale = 1;           // s
  std::optional<float> cap;  // c
};

// The form of logits that the target's own head makes, times `scale`.
LogitForm FormOfTarget(const model::ModelConfig& target, float scale = 1);

// Reads "logit_scale", by default 1. INVALID_ARGUMENT: it is no number above 0 that a float can hold.
absl::StatusOr<float> ReadLogitScale(const model::JsonFields& config);

struct DraftHeadParts {
  std::unique_ptr<kernels::Weight> weight;  // [Vd, E]
  std::vector<int32_t> token_ids;           // [Vd] of the target, increasing; empty: row i has id i
  LogitForm form;                           // the target's if the head is; the head's own scale is not in it
};

class DraftHead {
 public:
  struct Sizes {
    int64_t vocab_size = 0;        // V
    int64_t draft_vocab_size = 0;  // Vd
    int32_t max_rows = 0;
  };
  // `token_ids` and `form` as in DraftHeadParts.
  DraftHead(std::span<const int32_t> token_ids, kernels::Backend& backend, const Sizes& sizes, const LogitForm& form);

  // A product that is added to the logits, after they have their form.
  struct Term {
    kernels::ConstTensorView x;               // [n, K] bf16
    const kernels::Weight* weight = nullptr;  // [Vd, K]
  };
  // `x` [n, E] bf16; `weight` [Vd, E]. Returns [n, V] f32, valid until the next call.
  kernels::ConstTensorView Logits(const kernels::ConstTensorView& x, const kernels::Weight& weight,
                                  const std::optional<Term>& bias = std::nullopt);
  // The same in two parts, for products that the caller has: it puts them into drafted(n), [n, Vd] f32.
  kernels::TensorView drafted(int64_t num_rows) { return drafted_.rows(num_rows); }
  kernels::ConstTensorView Complete(int64_t num_rows, const std::optional<Term>& bias);

 private:
  kernels::Backend& backend_;
  const LogitForm form_;
  tensor::Tensor token_ids_;  // [Vd] i32, or empty
  tensor::Tensor drafted_;    // [max rows, Vd] f32
  tensor::Tensor logits_;     // [max rows, V] f32, or empty
};

struct DraftVocabulary {
  int64_t vocab_size = 0;        // V of the drafter's file
  int64_t draft_vocab_size = 0;  // Vd
  int64_t num_inputs = 0;        // E
};

// Reads "lm_head.weight" and "d2t", where the target's id of row i is i + d2t[i]. A file without a head takes the
// target's rows of these ids. Errors also name "d2t": an id that is none of the target's, or ids that do not increase;
// and "t2d", which marks the target's ids that have a row: other ids than d2t's.
absl::StatusOr<DraftHeadParts> LoadDraftHead(const DraftVocabulary& vocabulary, const DrafterTensors& tensors,
                                             const TargetFiles& target);

// Reads "embed_tokens.weight", [V, E]. A file without it takes the target's embedding.
absl::StatusOr<std::unique_ptr<kernels::Weight>> LoadDraftEmbedding(const model::ModelConfig& block,
                                                                    const DrafterTensors& tensors,
                                                                    const TargetFiles& target);

}  // namespace foretoken::proposer
