// SPDX-License-Identifier: Apache-2.0
#include "common/model/transformer.h"

#include <utility>

#include "kernels/check.h"

namespace foretoken::model {

size_t KvCache::num_bytes() const {
  size_t num_bytes = 0;
  for (const RankKvCache& rank : ranks) num_bytes += rank.view.num_bytes();
  return num_bytes;
}

Transformer::Transformer(const ModelConfig& config, ModelWeights weights, kernels::Backend& backend,
                         const TransformerOptions& options)
    : config_(config), group_(nullptr) {
  const RankPlace place = {.backend = &backend};
  ranks_.push_back(std::make_unique<TransformerRank>(config, std::move(weights), place, options));
}

Transformer::Transformer(const ModelConfig& config, std::vector<ModelWeights> weights, parallel::RankGroup& group,
                         const TransformerOptions& options)
    : config_(config), group_(&group), ranks_(weights.size()) {
  FT_CHECK(static_cast<int>(weights.size()) == group.num_ranks());
  RunOnRanks([&](int rank) {
    const RankPlace place = {.backend = &group.backend(rank), .communicator = group.communicator(rank)};
    ranks_[rank] = std::make_unique<TransformerRank>(config, std::move(weights[rank]), place, options);
  });
}

KvCache Transformer::MakeKvCache(int32_t num_blocks) const {
  KvCache cache{.num_blocks = num_blocks};
  for (const std::unique_ptr<TransformerRank>& rank : ranks_) {
    RankKvCache& part = cache.ranks.emplace_back();
    part.view = rank->KvShape(num_blocks);
    part.buffer = rank->backend().Allocate(part.view.num_bytes());
    part.view.data = part.buffer.get();
  }
  return cache;
}

kernels::ConstTensorView Transformer::Forward(const ForwardBatch& batch, const KvCache& kv) {
  kernels::ConstTensorView logits;
  RunOnRanks([&](int rank) {
    const kernels::ConstTensorView made = ranks_[rank]->Forward(batch, kv.ranks[rank].view);
    if (rank == 0) logits = made;
  });
  return logits;
}

void Transformer::MoveKv(const KvCache& kv, std::span<const kernels::KvMove> moves) {
  RunOnRanks([&](int rank) { ranks_[rank]->backend().MoveKv({.kv = kv.ranks[rank].view, .moves = moves}); });
}

void Transformer::Capture(std::span<const int32_t> layers) {
  RunOnRanks([&](int rank) { ranks_[rank]->Capture(layers); });
}

void Transformer::Synchronize() {
  RunOnRanks([&](int rank) { ranks_[rank]->backend().Synchronize(); });
}

ExpertUse Transformer::expert_use() const {
  ExpertUse use = ranks_[0]->expert_use();
  for (size_t rank = 1; rank < ranks_.size(); ++rank) use.num_bytes += ranks_[rank]->expert_use().num_bytes;
  return use;
}

void Transformer::RunOnRanks(const std::function<void(int rank)>& work) {
  if (group_ == nullptr) return work(0);
  group_->Run(work);
}

}  // namespace foretoken::model
