// SPDX-License-Identifier: Apache-2.0
// The decoder-only transformer of all families, written once over the backend seam: the whole model, or the part of one
// tensor-parallel rank (shard.h). What a family does otherwise is a switch of ModelConfig. Token trees, prompt chunks
// and plain decoding are the same code: a ForwardBatch.
//
// Activations: the residual stream is f32, inputs of matrix products are bf16. Every rank has the whole residual
// stream, with the same bits: the ranks' parts of a product are gathered and added in rank order. Logits are gathered
// on rank 0. A row's result depends on its own context only (E1), because every op guarantees that. If the backend has
// a Recorder, small passes are padded to one of its row counts and to a power of two of segments. Each such pass is
// recorded once: the work that it enqueues depends only on these two counts, on addresses that do not change, and on
// device memory.
// Errors: a batch beyond the options' limits is our own bug and ends the process.
// Threads: one per rank, all ranks at the same time.
// Source: transformers' modeling files of the families in families.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/model/config/config.h"
#include "common/model/device_batch.h"
#include "common/model/forward_batch.h"
#include "common/model/model_weights.h"
#include "common/model/shard.h"
#include "common/tensor/tensor.h"
#include "kernels/backend.h"
#include "kernels/communicator.h"

namespace foretoken::model {

struct TransformerOptions {
  int32_t max_rows = 512;        // T of one pass
  int32_t max_logit_rows = 512;  // at most this many of them with logits
  int32_t max_positions = 4096;  // every position is below it
};

// The backend and the communicator of a rank.
struct RankPlace {
  kernels::Backend* backend = nullptr;
  kernels::Communicator* communicator = nullptr;  // null: the only rank

  Shard shard() const {
    if (communicator == nullptr) return {};
    return {.rank = communicator->rank(), .num_ranks = communicator->num_ranks()};
  }
};

class TransformerRank {
 public:
  // `config` is the whole model's; `weights` are the rank's.
  TransformerRank(const ModelConfig& config, ModelWeights weights, const RankPlace& place,
                  const TransformerOptions& options);

  // Runs one pass: stores the K/V of the rank's heads in the rows' slots. Rank 0 returns the logits of
  // batch.logit_rows, [n, V] f32, valid until the next pass. The result of the other ranks has no meaning.
  kernels::ConstTensorView Forward(const ForwardBatch& batch, const kernels::KvCacheView& kv);

  // From the next pass on, rank 0 keeps S_k of all rows of a pass for these k, from 0 to L (common/speculation/
  // target_features.h). Empty: keeps nothing. Frees the memory of layers that are no longer captured, and on every rank
  // the passes that were recorded with other layers.
  void Capture(std::span<const int32_t> layers);
  // S_k of the last pass's rows: [T, E] f32, valid until the next pass. Rank 0 captures S_k.
  kernels::ConstTensorView captured(int32_t k) const;
  // The gain of the final norm, [E] f32.
  const float* final_norm() const { return weights_.final_norm.f32(); }

  // Zeros if no layer has experts. Threads: any.
  ExpertUse expert_use() const { return weights_.experts == nullptr ? ExpertUse() : weights_.experts->use(); }

  const TransformerOptions& options() const { return options_; }
  // The backend's line about the rank's products; see Backend::TuneProducts.
  const std::string& product_tuning() const { return product_tuning_; }
  kernels::Backend& backend() const { return backend_; }
  // The K/V of `num_blocks` blocks for the rank's heads, and of the block that the rank itself needs.
  kernels::KvCacheView KvShape(int32_t num_blocks) const;

 private:
  // Everything that decides which work is enqueued.
  struct Pass {
    DeviceBatch::View batch;
    kernels::KvCacheView kv;
    std::vector<int32_t> captured_layers;

    friend bool operator==(const Pass&, const Pass&) = default;
  };
  struct RecordedPass {
    Pass pass;
    std::unique_ptr<kernels::Recording> recording;  // null: the pass has run once
  };

  struct Rotation {
    tensor::Tensor cos;  // [max positions, R/2] f32
    tensor::Tensor sin;  // [max positions, R/2] f32
  };

  std::string TuneProducts() const;
  void PrepareExperts();
  Rotation MakeRotation(const RopeConfig& rope) const;
  const Rotation& RotationOf(int32_t layer_idx) const;
  std::optional<int32_t> RecordedRows(const ForwardBatch& batch) const;
  void EnqueueRecorded(const Pass& pass);
  void Enqueue(const Pass& pass);
  void KeepResidual(int32_t k, int32_t num_rows);
  void EmbedTokens(const kernels::BatchView& batch);
  void NormInput(const tensor::Tensor& gain, int32_t num_rows);
  const float* QkMeanSquares(int32_t num_rows);
  void RunLayer(int32_t layer_idx, const kernels::BatchView& batch, const kernels::KvCacheView& kv);
  void RunMlp(int32_t layer_idx, int32_t num_rows);
  void RunExperts(int32_t layer_idx, int32_t num_rows);
  void AddProduct(const kernels::TensorView& x, const kernels::Weight& weight, const float* bias,
                  const float* post_gain);
  void AddPieces(int32_t num_rows, const float* post_gain);
  kernels::TensorView PieceOf(int32_t rank, int32_t num_rows) const;
  kernels::TensorView Piece(int32_t num_rows) const { return PieceOf(shard_.rank, num_rows); }
  void SumPieces(int32_t num_rows, kernels::SumRanksArgs sum);
  void ComputeLogits(const DeviceBatch::View& batch);
  void GatherLogits(const kernels::ConstTensorView& normed, const kernels::TensorView& logits);

  Shard shard_;
  ModelConfig config_;  // of the rank
  ModelWeights weights_;
  std::vector<std::unique_ptr<kernels::ExpertSet>> experts_;  // [L] of weights_.experts; null: the layer has none
  kernels::Backend& backend_;
  kernels::Communicator* communicator_;  // null: this is the only rank
  kernels::Recorder* recorder_;          // null: passes are not recorded
  TransformerOptions options_;
  std::string product_tuning_;  // made before the tensors below, because it needs their memory for a while
  Rotation rotation_;           // of the layers without a window, and of the others if they have none of their own
  Rotation sliding_rotation_;

  // The activations of one pass.
  tensor::Tensor hidden_;         // [T, E] f32: the residual stream
  tensor::Tensor normed_;         // [T, E] bf16
  tensor::Tensor qkv_;            // [T, (H + 2 K) D] f32
  tensor::Tensor q_;              // [T, H D] f32
  tensor::Tensor mean_squares_;   // [R, T 2] f32 of the whole q and k, if they are normalised as a whole
  tensor::Tensor attention_;      // [T, H D] bf16
  tensor::Tensor gate_up_;        // [T, 2 F] f32, of the widest MLP
  tensor::Tensor scores_;         // [T, N] f32 of the router
  tensor::Tensor ffn_;            // [T, F] bf16
  tensor::Tensor logits_;         // [max_logit_rows, V] f32
  tensor::Tensor hidden_pieces_;  // [R, T E] f32, if there are several ranks, or a sum is changed before it is added
  // Only if there are several ranks.
  tensor::Tensor logit_pieces_;        // [R, max_logit_rows ceil(V/R)] f32 on rank 0; on other ranks only their own
                                       // piece
  std::vector<int64_t> logit_widths_;  // [R] number of each rank's ids

  std::map<int32_t, tensor::Tensor> captured_;  // [T, E] f32 by k
  std::vector<int32_t> captured_layers_;        // the k to capture

  DeviceBatch batch_;
  std::vector<RecordedPass> recorded_;
};

}  // namespace foretoken::model
