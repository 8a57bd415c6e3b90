// SPDX-License-Identifier: Apache-2.0
// The decoder-only transformer of Llama, Mistral, Qwen2 and Qwen3, written once over the backend seam: the whole of it,
// or what one tensor-parallel rank has of it (shard.h). Token trees, prompt chunks and plain decoding are the same
// code: a ForwardBatch.
//
// Activations: the residual stream is f32, inputs of matrix products are bf16. Every rank has the whole residual
// stream, with the same bits: what the ranks' halves of a product make is gathered and added in rank order. Logits are
// gathered on rank 0. What a row computes depends on its own context only (E1), because every op keeps that.
// Where the backend has a Recorder, small passes are padded to one of its row counts and a power of two of segments and
// recorded, once for each: what a pass enqueues is a function of these, of addresses that stay, and of device memory.
// Errors: a batch beyond the options' limits is our own bug and dies. Threads: one per rank, all ranks at a time.
// Source: transformers' modeling_llama, modeling_mistral, modeling_qwen2, modeling_qwen3.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/model/config.h"
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
  int32_t max_logit_rows = 512;  // of them, with logits
  int32_t max_positions = 4096;  // positions are below it
};

// Where a rank computes.
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
  // The config is the whole model's, the weights are the rank's.
  TransformerRank(const ModelConfig& config, ModelWeights weights, const RankPlace& place,
                  const TransformerOptions& options);

  // One pass: stores the rows' K/V, of the rank's heads, in their slots. Rank 0 returns the logits of batch.logit_rows,
  // [n, V] f32, valid until the next pass; the others return nothing of use.
  kernels::ConstTensorView Forward(const ForwardBatch& batch, const kernels::KvCacheView& kv);

  const TransformerOptions& options() const { return options_; }
  // What the backend found about the rank's products; see Backend::TuneProducts.
  const std::string& product_tuning() const { return product_tuning_; }
  kernels::Backend& backend() const { return backend_; }
  // The K/V of so many blocks, of the rank's heads, and of what the rank itself needs.
  kernels::KvCacheView KvShape(int32_t num_blocks) const;

 private:
  // All that decides what is enqueued.
  struct Pass {
    DeviceBatch::View batch;
    kernels::KvCacheView kv;

    friend bool operator==(const Pass&, const Pass&) = default;
  };
  struct RecordedPass {
    Pass pass;
    std::unique_ptr<kernels::Recording> recording;  // null: it has run once
  };

  std::string TuneProducts() const;
  std::optional<int32_t> RecordedRows(const ForwardBatch& batch) const;
  void EnqueueRecorded(const Pass& pass);
  void Enqueue(const Pass& pass);
  void EmbedTokens(const kernels::BatchView& batch);
  void RunLayer(int32_t layer_idx, const kernels::BatchView& batch, const kernels::KvCacheView& kv);
  void AddProduct(const kernels::TensorView& x, const kernels::Weight& weight, const float* bias);
  kernels::TensorView Piece(int32_t num_rows) const;
  void SumPieces(int32_t num_rows, kernels::OutputMode mode);
  void ComputeLogits(const DeviceBatch::View& batch);
  void GatherLogits(const kernels::ConstTensorView& normed, const kernels::TensorView& logits);

  Shard shard_;
  ModelConfig config_;  // of the rank
  ModelWeights weights_;
  kernels::Backend& backend_;
  kernels::Communicator* communicator_;  // null: the only rank
  kernels::Recorder* recorder_;          // null: passes are not recorded
  TransformerOptions options_;
  std::string product_tuning_;  // made before the tensors below, whose memory it needs meanwhile
  tensor::Tensor rope_cos_;     // [max positions, D/2] f32
  tensor::Tensor rope_sin_;     // [max positions, D/2] f32

  // Activations of one pass.
  tensor::Tensor hidden_;     // [T, E] f32: the residual stream
  tensor::Tensor normed_;     // [T, E] bf16
  tensor::Tensor qkv_;        // [T, (H + 2 K) D] f32
  tensor::Tensor q_;          // [T, H D] f32
  tensor::Tensor attention_;  // [T, H D] bf16
  tensor::Tensor gate_up_;    // [T, 2 F] f32
  tensor::Tensor ffn_;        // [T, F] bf16
  tensor::Tensor logits_;     // [max_logit_rows, V] f32
  // Of several ranks.
  tensor::Tensor hidden_pieces_;       // [R, T E] f32
  tensor::Tensor logit_pieces_;        // [R, max_logit_rows ceil(V/R)] f32, on rank 0; elsewhere its own only
  std::vector<int64_t> logit_widths_;  // [R] ids of each rank

  DeviceBatch batch_;
  std::vector<RecordedPass> recorded_;
};

}  // namespace foretoken::model
