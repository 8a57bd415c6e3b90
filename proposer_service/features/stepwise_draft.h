// SPDX-License-Identifier: Apache-2.0
// A drafter without attention: a row needs its token and the state of the row before it. The first row after the
// verifier's tokens takes a feature instead, and each step may have weights of its own.
//
// A row of the context has no use but to be the root, so only rows with logits are computed. Rows whose steps share
// their weights are computed together.
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/tensor/tensor.h"
#include "kernels/backend.h"
#include "proposer_service/draft/draft_model.h"
#include "proposer_service/features/parts/device_lists.h"
#include "proposer_service/features/parts/slot_outputs.h"

namespace foretoken::proposer {

class StepwiseDraft : public DraftModel {
 public:
  const Limits& limits() const override { return limits_; }
  kernels::Backend& backend() const override { return *backend_; }
  void Synchronize() override { backend_->Synchronize(); }
  kernels::ConstTensorView Forward(const DraftPass& pass) override;
  void Move(std::span<const kernels::KvMove> moves) override { states_.Move(moves); }

 protected:
  StepwiseDraft(std::unique_ptr<kernels::Backend> backend, const Limits& limits, int64_t state_width);

  struct StepRows {
    int32_t step = 0;                    // of the first row
    const int32_t* token_ids = nullptr;  // [n] in the backend's memory
    kernels::ConstTensorView input;      // [n, W] bf16 features where step is 0, else [n, S] bf16 states
  };
  // Steps of equal numbers share their weights. Step 0 shares them with no other.
  virtual int32_t WeightsOf(int32_t step) const { return step; }
  // Computes the rows' states, [n, S] bf16, and returns their logits, [n, V] f32, valid until the next call.
  virtual kernels::ConstTensorView Compute(const StepRows& rows, const kernels::TensorView& states) = 0;

 private:
  struct Group;
  kernels::ConstTensorView InputOf(const Group& group, const DraftPass& pass);

  const std::unique_ptr<kernels::Backend> backend_;  // outlives the members below, and those of derived classes
  const Limits limits_;
  SlotOutputs states_;
  DeviceLists lists_;
  tensor::Tensor features_;   // [T, W] bf16
  tensor::Tensor state_in_;   // [T, S] bf16
  tensor::Tensor state_out_;  // [T, S] bf16
  tensor::Tensor logits_;     // [T, V] f32
};

}  // namespace foretoken::proposer
