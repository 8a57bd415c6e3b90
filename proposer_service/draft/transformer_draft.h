// SPDX-License-Identifier: Apache-2.0
// A causal language model as the model of a forest. It reads no features.
#pragma once

#include <span>

#include "common/model/runnable_model.h"
#include "proposer_service/draft/draft_model.h"

namespace foretoken::proposer {

class TransformerDraft : public DraftModel {
 public:
  explicit TransformerDraft(model::RunnableModel model);

  const Limits& limits() const override { return limits_; }
  kernels::ConstTensorView Forward(const DraftPass& pass) override {
    return model_.transformer->Forward(pass.batch, model_.kv);
  }
  void Move(std::span<const kernels::KvMove> moves) override { model_.transformer->MoveKv(model_.kv, moves); }
  void Synchronize() override { model_.transformer->Synchronize(); }
  kernels::Backend& backend() const override { return model_.transformer->backend(); }

  model::ExpertUse expert_use() const override { return model_.transformer->expert_use(); }

  const model::RunnableModel& runnable() const { return model_; }

 private:
  model::RunnableModel model_;
  Limits limits_;
};

// A drafter of method "draft", which works with verifiers of the model's own vocabulary.
Drafter MakeTransformerDrafter(model::RunnableModel model);

}  // namespace foretoken::proposer
