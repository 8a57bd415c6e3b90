// SPDX-License-Identifier: Apache-2.0
// DSpark's head: a bias on the logits of a block's row by the token before it. So the guesses below two siblings
// differ, although both take the same row of the block. With w = W1[token] and the output z of the block's row:
//
//   vanilla     logits += W2 w
//   gated       logits += W2 (sigmoid(G cat(z, w) + b) * w)
//   recurrent   [g; c; o] = J cat(s, w, z) + b,  s' = sigmoid(g) s + (1 - sigmoid(g)) tanh(c),  logits += W2 tanh(o)
//
// A state s begins as 0 at a block's root, and the rows below a row take its s'. So states are kept by slot.
//
// A second head may say how sure the draft is of a row: confidence = sigmoid(C cat(z, w) + c), or of z alone. It is
// computed on the host: it is one number per row. A file may have either head, both, or none.
//
// Source: the readers of vLLM, and speculators.
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/json_fields.h"
#include "common/tensor/tensor.h"
#include "kernels/backend.h"
#include "proposer_service/features/block_draft.h"
#include "proposer_service/features/parts/device_lists.h"
#include "proposer_service/features/parts/draft_head.h"
#include "proposer_service/features/parts/drafter_tensors.h"
#include "proposer_service/features/parts/slot_outputs.h"

namespace foretoken::proposer {

enum class MarkovType { kVanilla, kGated, kRecurrent };

struct MarkovForm {
  MarkovType type = MarkovType::kVanilla;
  int64_t rank = 0;              // r; 0: there is no such head
  int64_t vocab_size = 0;        // V
  int64_t draft_vocab_size = 0;  // Vd
  int64_t hidden_size = 0;       // E

  int64_t state_bytes() const;  // per position of the contexts
};

// The type and the rank by the keys `markov_rank` and `markov_head_type`, or else by the tensors that the file has.
// INVALID_ARGUMENT: an unknown type, or a rank out of bounds.
absl::StatusOr<MarkovForm> ResolveMarkovForm(const model::JsonFields& config, const std::optional<int64_t>& rank,
                                             const std::optional<std::string>& type, const DrafterTensors& tensors);

class MarkovHead {
 public:
  struct Weights {
    std::unique_ptr<kernels::Weight> by_token;   // W1 [V, r]
    std::unique_ptr<kernels::Weight> to_logits;  // W2 [Vd, r]
    std::unique_ptr<kernels::Weight> gates;      // G [r, E + r], or J [3 r, 2 r + E], or null
    tensor::Tensor gate_bias;                    // [r] or [3 r] f32
    std::vector<float> confidence;               // [E + r] or [E]; empty: no confidence head
    float confidence_bias = 0;
  };
  static bool HasConfidence(const DrafterTensors& tensors);

  MarkovHead(const MarkovForm& form, Weights weights, kernels::Backend& backend, const DraftModel::Limits& limits);

  // The term is valid until the next call. Unset: there is no bias.
  std::optional<DraftHead::Term> Term(const TreeRows& rows);
  // Of the rows of the last call, once the backend is synchronised. Empty: there is no confidence head.
  std::vector<float> Confidences() const;
  // Moves what the head keeps of rows to other slots.
  void Move(std::span<const kernels::KvMove> moves);

 private:
  kernels::TensorView Gate(const kernels::ConstTensorView& outputs, const kernels::TensorView& by_token);
  kernels::TensorView Step(const TreeRows& rows, const kernels::TensorView& by_token);

  kernels::Backend& backend_;
  const MarkovForm form_;
  const Weights weights_;
  tensor::Tensor embedded_;  // [T, r] f32, or empty
  tensor::Tensor narrow_;    // [T, r] bf16, or empty
  // Of the gated and the recurrent head.
  tensor::Tensor inputs_;      // [T, columns of G or J] bf16
  tensor::Tensor gates_;       // [T, r] or [T, 3 r] f32
  tensor::Tensor gate_pairs_;  // [T, 2 r] f32: each row is r gate values, then the r values that they multiply
  tensor::Tensor gated_;       // [T, r] bf16
  // Of the recurrent head: the states by slot, and behind them the one of a root, which stays 0.
  std::unique_ptr<SlotOutputs> states_;
  std::unique_ptr<DeviceLists> lists_;
  int32_t root_state_ = 0;
  tensor::Tensor state_;  // [T, r] f32
  // Copies of the last call's rows on the host.
  int64_t num_rows_ = 0;
  std::vector<uint16_t> outputs_;   // [n, E] bf16
  std::vector<uint16_t> by_token_;  // [n, r] bf16, or empty
};

// Reads what the form names, and the confidence head if there is one.
absl::StatusOr<MarkovHead::Weights> LoadMarkovHead(const MarkovForm& form, const DrafterTensors& tensors);

}  // namespace foretoken::proposer
