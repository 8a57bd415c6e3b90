// SPDX-License-Identifier: Apache-2.0
// The outputs of a drafter's rows, kept by K/V slot, and the features that the rows of a pass take: those that the
// verifier made, and the outputs of parents.
//
//   outputs.Gather(pass, features);             // [T, W] f32
//   outputs.Store(y, batch.slots);              // the outputs of the pass's rows
//
// Outputs are bf16, as features are on the wire.
// Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/tensor/tensor.h"
#include "kernels/backend.h"
#include "proposer_service/draft/draft_model.h"
#include "proposer_service/features/parts/device_lists.h"

namespace foretoken::proposer {

class SlotOutputs {
 public:
  struct Sizes {
    int64_t num_slots = 0;
    int64_t width = 0;     // W
    int32_t max_rows = 0;  // of a pass
  };
  SlotOutputs(kernels::Backend& backend, const Sizes& sizes);

  void Gather(const DraftPass& pass, const kernels::TensorView& features);
  // The outputs of these slots, [n, W] f32 or bf16.
  void Gather(std::span<const int32_t> slots, const kernels::TensorView& outputs);
  // `outputs` [T, W] f32 or bf16; `slots` [T] in the backend's memory.
  void Store(const kernels::ConstTensorView& outputs, const int32_t* slots);
  void Move(std::span<const kernels::KvMove> moves);

 private:
  kernels::Backend& backend_;
  const Sizes sizes_;
  tensor::Tensor outputs_;  // [slots, W] bf16
  tensor::Tensor staging_;  // [max_rows, W] bf16
  DeviceLists lists_;
};

}  // namespace foretoken::proposer
