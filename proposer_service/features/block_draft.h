// SPDX-License-Identifier: Apache-2.0
// A drafter that guesses a whole block of tokens in one pass. When a root gets its row, the drafter runs a block of B
// rows behind the context: the root's token, and B - 1 mask tokens. Each row of the block guesses the token of one
// depth, whatever the tokens above it are. So the rows of a tree need no pass of their own, and no product with the LM
// head: that of a block's rows is computed at once, and a row takes the logits of its depth. A format may still make a
// row's logits depend on the row's own token (LogitTerm).
//
//   root at position p      block rows: t_p, mask, mask, ...        guesses of depth 1, 2, 3, ...
//
// Only the rows of a context have K/V. The K/V of a block lies in scratch blocks behind the cache until the pass ends.
// The outputs of a block are kept by the K/V block of the root's slot: a session has one root at a time. The logits are
// kept for the latest blocks only, because they are wide. A pass with a row of an older block computes its logits from
// the outputs.
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/model/device_batch.h"
#include "common/tensor/tensor.h"
#include "kernels/backend.h"
#include "proposer_service/draft/draft_model.h"
#include "proposer_service/features/parts/device_lists.h"
#include "proposer_service/features/parts/draft_head.h"
#include "proposer_service/features/parts/drafter_blocks.h"

namespace foretoken::proposer {

struct BlockForm {
  int32_t num_rows = 0;        // B
  int32_t first_guess = 0;     // the row that guesses the token after the root's
  bool replaces_root = false;  // row 0 is the root's row once more; false: it comes behind the root's row
  // Windows are counted from the context's last position. False: from each row's own.
  bool windows_from_context = false;
  int32_t mask_token_id = 0;
  int64_t hidden_size = 0;  // E
  int64_t max_kept_logit_bytes = 0;

  int32_t num_guesses() const { return num_rows - first_guess; }
};

// The rows of a pass that have logits, and their place in trees.
struct TreeRows {
  kernels::ConstTensorView outputs;       // [n, E] bf16: a row's own of its block
  const int32_t* token_ids = nullptr;     // [n] in the backend's memory
  std::span<const int32_t> slots;         // [n]
  std::span<const int32_t> parent_slots;  // [n] of the rows above; -1: the row is a root's
};

class BlockDraft : public DraftModel {
 public:
  // What the kept outputs take per position of the contexts.
  static int64_t OutputBytes(const BlockForm& form);

  const Limits& limits() const override { return limits_; }
  kernels::Backend& backend() const override { return *backend_; }
  void Synchronize() override { backend_->Synchronize(); }
  kernels::ConstTensorView Forward(const DraftPass& pass) override;
  void Move(std::span<const kernels::KvMove> moves) override;

 protected:
  BlockDraft(std::unique_ptr<kernels::Backend> backend, const Limits& limits, const BlockForm& form,
             DraftHeadParts head);

  // Limits of the decoder blocks: with room for the blocks of a pass behind the contexts.
  static BlockLimits LimitsOf(const Limits& limits, const BlockForm& form);

  const BlockForm& form() const { return form_; }

  // The rows of all blocks, block after block, under one of the two masks that layers have.
  struct MaskedRows {
    kernels::BatchView batch;
    Sight sight;
  };
  struct Blocks {
    MaskedRows causal;                        // a row sees its block as far as itself
    MaskedRows open;                          // a row sees its whole block
    std::span<const uint16_t> root_features;  // [blocks, W] bf16
  };
  virtual const kernels::KvCacheView& kv() const = 0;
  // Stores the K/V of context rows. `features` [T, W] bf16.
  virtual void ReadContext(const kernels::BatchView& batch, const kernels::TensorView& features) = 0;
  // Returns the inputs of the head, [T, E] bf16, valid until the next call.
  virtual kernels::ConstTensorView RunBlocks(const Blocks& blocks) = 0;
  // What the rows' own tokens add to their logits.
  virtual std::optional<DraftHead::Term> LogitTerm(const TreeRows& rows);

 private:
  struct Root {
    int32_t row = 0;    // of the pass
    int32_t place = 0;  // among the rows with logits
  };
  // A row of a tree, and the kept outputs that it takes one of.
  struct TreeRow {
    int32_t kept_at = 0;
    int32_t step = 0;
    int32_t place = 0;  // among the rows with logits
  };
  void ReadContextRows(const DraftPass& pass);
  // False: the logits of a row are no longer kept.
  bool TakeKept(std::span<const TreeRow> rows);
  void GuessBlocks(const DraftPass& pass, std::span<const Root> roots);
  int32_t KeepLogits(const kernels::ConstTensorView& outputs, std::span<const int32_t> kept_at);
  void CopyRows(const kernels::ConstTensorView& x, std::span<const int32_t> from, std::span<const int32_t> to,
                const kernels::TensorView& out);

  const std::unique_ptr<kernels::Backend> backend_;  // outlives the members below, and those of derived classes
  const Limits limits_;
  const BlockForm form_;
  const std::unique_ptr<kernels::Weight> lm_head_;  // [Vd, E]
  DraftHead head_;
  std::vector<int32_t> kept_at_;  // [slots] the K/V block under which the outputs for the row at this slot are kept
  tensor::Tensor kept_;           // [K/V blocks * guesses, E] bf16
  // The logits of the latest blocks, block after block, without LogitTerm. The oldest is overwritten.
  std::vector<int32_t> logits_at_;  // [K/V blocks] the place of the kept outputs' logits; -1: none
  std::vector<int32_t> logits_of_;  // [places] the K/V block; -1: none
  tensor::Tensor kept_logits_;      // [places * B, Vd] f32
  int32_t next_place_ = 0;
  model::DeviceBatch context_batch_;
  model::DeviceBatch causal_batch_;
  model::DeviceBatch open_batch_;
  DeviceLists lists_;
  tensor::Tensor features_;  // [T, W] bf16
  tensor::Tensor outputs_;   // [T, E] bf16: the inputs of the head
};

}  // namespace foretoken::proposer
