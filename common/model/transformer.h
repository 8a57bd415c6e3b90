// SPDX-License-Identifier: Apache-2.0
// A loaded model, ready to compute on one rank or several. The engine and the draft proposer use it. Every rank runs
// the same pass over its part of the weights and of the K/V. Block and slot numbers are the same on all ranks.
//
//   Transformer transformer(config, std::move(weights), ranks, {.max_rows = 512, .max_positions = 4096});
//   KvCache kv = transformer.MakeKvCache(num_blocks);
//   const ConstTensorView logits = transformer.Forward(batch, kv);        // [batch.logit_rows, V] f32
//   transformer.backend().AcceptTrees({.logits = logits, ...});           // rank 0's backend: it has the logits
//   transformer.MoveKv(kv, moves);                                        // on every rank
//   transformer.Synchronize();                                            // now the paths are filled
//
// Errors: a batch beyond the options' limits is our own bug and ends the process.
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/model/config/config.h"
#include "common/model/forward_batch.h"
#include "common/model/model_weights.h"
#include "common/model/transformer_rank.h"
#include "common/parallel/rank_group.h"
#include "kernels/backend.h"

namespace foretoken::model {

// One rank's heads of every block.
struct RankKvCache {
  kernels::Buffer buffer;
  kernels::KvCacheView view;
};

struct KvCache {
  int32_t num_blocks = 0;
  std::vector<RankKvCache> ranks;  // [R]

  size_t num_bytes() const;
};

class Transformer {
 public:
  // One rank, on the caller's thread.
  Transformer(const ModelConfig& config, ModelWeights weights, kernels::Backend& backend,
              const TransformerOptions& options);
  // `weights` has one entry per rank of the group.
  Transformer(const ModelConfig& config, std::vector<ModelWeights> weights, parallel::RankGroup& group,
              const TransformerOptions& options);

  KvCache MakeKvCache(int32_t num_blocks) const;

  // Runs one pass: stores the rows' K/V in their slots, and returns the logits of batch.logit_rows, [n, V] f32, in
  // memory of backend(). They are valid until the next pass.
  kernels::ConstTensorView Forward(const ForwardBatch& batch, const KvCache& kv);
  void MoveKv(const KvCache& kv, std::span<const kernels::KvMove> moves);
  // As TransformerRank's, on every rank: all record their passes anew at the same time. Rank 0 keeps the states.
  void Capture(std::span<const int32_t> layers);
  kernels::ConstTensorView captured(int32_t k) const { return ranks_[0]->captured(k); }
  const float* final_norm() const { return ranks_[0]->final_norm(); }
  // Waits for every rank's device, each on the rank's thread. If another rank's device has failed, only that rank's own
  // calls find out, so a wait for rank 0 alone might never end.
  void Synchronize();

  // Experts of the whole model: the bytes of all ranks. A load counts once, since the ranks load their parts together.
  // Threads: any.
  ExpertUse expert_use() const;

  const ModelConfig& config() const { return config_; }
  const TransformerOptions& options() const { return ranks_[0]->options(); }
  // Rank 0's result, as a line for the log. Other ranks may have other results, with the same bits. Empty: there is
  // nothing to report.
  const std::string& product_tuning() const { return ranks_[0]->product_tuning(); }
  kernels::Backend& backend() const { return ranks_[0]->backend(); }

 private:
  void RunOnRanks(const std::function<void(int rank)>& work);

  ModelConfig config_;
  parallel::RankGroup* group_;                           // null: one rank
  std::vector<std::unique_ptr<TransformerRank>> ranks_;  // [R]
};

}  // namespace foretoken::model
