// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/features/eagle3.h"

#include <memory>
#include <utility>

#include "common/base/status_macros.h"
#include "common/model/device_batch.h"
#include "proposer_service/features/eagle3_layers.h"
#include "proposer_service/features/p_eagle.h"
#include "proposer_service/features/parts/slot_outputs.h"

namespace foretoken::proposer {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::Shape;
using kernels::TensorView;
using tensor::Tensor;

class Eagle3 : public DraftModel {
 public:
  explicit Eagle3(Eagle3Files files)
      : backend_(std::move(files.backend)),
        config_(files.config),
        limits_(files.limits),
        norm_(std::move(files.weights.norm)),
        head_norm_(std::move(files.weights.head_norm)),
        layers_(
            config_, files.weights, *backend_,
            {.max_rows = limits_.max_rows, .max_positions = limits_.max_positions, .num_blocks = limits_.num_blocks}),
        lm_head_(std::move(files.weights.head.weight)),
        head_(files.weights.head.token_ids, *backend_,
              {.vocab_size = limits_.vocab_size,
               .draft_vocab_size = config_.draft_vocab_size,
               .max_rows = limits_.max_rows},
              files.weights.head.form),
        outputs_(*backend_, {.num_slots = int64_t{limits_.num_blocks} * kernels::kKvBlockSize,
                             .width = limits_.feature_width,
                             .max_rows = limits_.max_rows}),
        batch_(*backend_, 0),
        hidden_(*backend_, DType::kF32, Shape(limits_.max_rows, config_.block.hidden_size)),
        normed_(*backend_, DType::kBF16, Shape(limits_.max_rows, config_.block.hidden_size)) {}

  const Limits& limits() const override { return limits_; }
  kernels::Backend& backend() const override { return *backend_; }
  void Synchronize() override { backend_->Synchronize(); }

  ConstTensorView Forward(const DraftPass& pass) override {
    const model::DeviceBatch::View view = batch_.Upload(pass.batch);
    const TensorView hidden = hidden_.rows(view.batch.num_rows);
    outputs_.Gather(pass, hidden);
    layers_.Run(view.batch, hidden);
    KeepOutputs(view.batch);
    return Logits(view);
  }

  void Move(std::span<const kernels::KvMove> moves) override {
    backend_->MoveKv({.kv = layers_.kv(), .moves = moves});
    outputs_.Move(moves);
  }

 private:
  float eps() const { return static_cast<float>(config_.block.rms_norm_eps); }

  void KeepOutputs(const kernels::BatchView& batch) {
    const TensorView hidden = hidden_.rows(batch.num_rows), normed = normed_.rows(batch.num_rows);
    if (config_.norm_output) backend_->RmsNorm({.x = hidden, .gain = norm_.f32(), .eps = eps(), .out = normed});
    outputs_.Store(config_.norm_output ? normed : hidden, batch.slots);
  }

  ConstTensorView Logits(const model::DeviceBatch::View& view) {
    if (view.num_logit_rows == 0) return {.shape = Shape(0, limits_.vocab_size)};
    const TensorView normed = normed_.rows(view.num_logit_rows);
    backend_->RmsNorm(
        {.x = hidden_.view(), .rows = view.logit_rows, .gain = head_norm_.f32(), .eps = eps(), .out = normed});
    return head_.Logits(normed, *lm_head_);
  }

  const std::unique_ptr<kernels::Backend> backend_;  // outlives the members below
  const Eagle3Config config_;
  const Limits limits_;
  const Tensor norm_;       // [E] f32
  const Tensor head_norm_;  // [E] f32
  Eagle3Layers layers_;
  const std::unique_ptr<kernels::Weight> lm_head_;  // [Vd, E]
  DraftHead head_;
  SlotOutputs outputs_;
  model::DeviceBatch batch_;

  // The activations of one pass.
  Tensor hidden_;  // [T, E] f32: the features, then the residual stream
  Tensor normed_;  // [T, E] bf16
};

}  // namespace

absl::StatusOr<Drafter> LoadEagle3(const DraftOptions& options) {
  FT_ASSIGN_OR_RETURN(Eagle3Files files, ReadEagle3Files(options));
  if (!files.mask_state.empty()) return MakePEagle(std::move(files), options);
  Drafter drafter{.description = std::move(files.description)};
  drafter.model = std::make_unique<Eagle3>(std::move(files));
  return drafter;
}

}  // namespace foretoken::proposer
