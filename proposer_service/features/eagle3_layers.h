// SPDX-License-Identifier: Apache-2.0
// The decoder layers of EAGLE-3, and the files that they come from. Two drafters run them: EAGLE-3 guesses token after
// token (eagle3.h), P-EAGLE a whole block (p_eagle.h).
//
// With R the root mean square norm, t the token of a row and g its feature:
//   e = R(embed(t)), u = R(g)                        each with its own gain
//   x = r + Attention(cat(e, u)),  r = g, or u where norm_before_residual
//   y = x + MLP(R(x))
// Further layers are ordinary decoder layers on y. The feature is fc cat(S_a, S_b, S_c), which the verifier computes
// (speculation::TargetFeatures).
//
// Source: EAGLE-3 (2503.01840), and the readers of vLLM and SGLang for the layouts of files.
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_weights.h"
#include "common/tensor/tensor.h"
#include "kernels/backend.h"
#include "proposer_service/draft/draft_proposer.h"
#include "proposer_service/features/eagle3_config.h"
#include "proposer_service/features/parts/draft_head.h"
#include "proposer_service/features/parts/drafter_blocks.h"

namespace foretoken::proposer {

struct Eagle3Weights {
  std::unique_ptr<kernels::Weight> embed;  // [V, E]
  std::vector<model::LayerWeights> layers;
  tensor::Tensor hidden_norm;  // [E] f32
  tensor::Tensor norm;         // [E] f32
  tensor::Tensor head_norm;    // [E] f32: norm, times the scale of the logits
  DraftHeadParts head;
};

// What is read of a head's files.
struct Eagle3Files {
  std::unique_ptr<kernels::Backend> backend;  // outlives the weights
  Eagle3Config config;
  Eagle3Weights weights;
  std::vector<float> mask_state;  // [A E of the target] of P-EAGLE, in the place of hidden states; else empty
  DraftModel::Limits limits;
  ProposerDescription description;
};

// Reads the head in options.model_directory, for the target in options.target_directory. Errors: the fault, the file
// or the option, the expected and the given value.
absl::StatusOr<Eagle3Files> ReadEagle3Files(const DraftOptions& options);

class Eagle3Layers {
 public:
  // The backend outlives it. Leaves the head, its norms and nothing else in `weights`.
  Eagle3Layers(const Eagle3Config& config, Eagle3Weights& weights, kernels::Backend& backend,
               const BlockLimits& limits);

  // `hidden` [T, E] f32: the features g; then y.
  void Run(const kernels::BatchView& batch, const kernels::TensorView& hidden);
  const kernels::KvCacheView& kv() const { return blocks_.kv(); }

 private:
  void JoinInputs(const kernels::BatchView& batch, const kernels::TensorView& hidden);

  const Eagle3Config config_;
  kernels::Backend& backend_;
  const std::unique_ptr<kernels::Weight> embed_;  // [V, E]
  const tensor::Tensor hidden_norm_;              // [E] f32
  DrafterBlocks blocks_;

  // The activations of one pass.
  tensor::Tensor embedded_;  // [T, E] f32
  tensor::Tensor normed_;    // [T, E] bf16
  tensor::Tensor pair_;      // [T, 2 E] bf16
};

}  // namespace foretoken::proposer
