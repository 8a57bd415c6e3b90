// SPDX-License-Identifier: Apache-2.0
// DSpark's head: a bias on the logits of a block's row by the token before it. So the guesses below two siblings
// differ, although both take the same row of the block.
//
//   w = W1[token],  logits += W2 w
//
// A second head may say how sure the draft is of a row: confidence = sigmoid(C cat(z, w) + c), or of z alone, where z
// is the output of the block's row. It is computed on the host: it is one number per row. A file may have either head,
// both, or none.
//
// Source: the reader of vLLM.
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/tensor/tensor.h"
#include "kernels/backend.h"
#include "proposer_service/features/draft_head.h"

namespace foretoken::proposer {

class MarkovHead {
 public:
  struct Weights {
    std::unique_ptr<kernels::Weight> by_token;   // W1 [V, r]
    std::unique_ptr<kernels::Weight> to_logits;  // W2 [Vd, r]
    int64_t rank = 0;                            // r; 0: none
    std::vector<float> confidence;               // [E + r] or [E]; empty: no confidence head
    float confidence_bias = 0;
  };
  MarkovHead(Weights weights, kernels::Backend& backend, int32_t max_rows);

  // `outputs` [n, E] bf16; `token_ids` [n] in the backend's memory. The term is valid until the next call. Unset: there
  // is no bias.
  std::optional<DraftHead::Term> Term(const kernels::ConstTensorView& outputs, const int32_t* token_ids);
  // Of the rows of the last call, once the backend is synchronised. Empty: there is no confidence head.
  std::vector<float> Confidences() const;

 private:
  kernels::Backend& backend_;
  const Weights weights_;
  tensor::Tensor embedded_;  // [T, r] f32, or empty
  tensor::Tensor narrow_;    // [T, r] bf16, or empty
  // Copies of the last call's rows on the host.
  int64_t num_rows_ = 0;
  std::vector<uint16_t> outputs_;   // [n, E] bf16
  std::vector<uint16_t> by_token_;  // [n, r] bf16, or empty
};

}  // namespace foretoken::proposer
