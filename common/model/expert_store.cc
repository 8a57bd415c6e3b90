// SPDX-License-Identifier: Apache-2.0
#include "common/model/expert_store.h"

#include <utility>

#include "kernels/check.h"

namespace foretoken::model {

ExpertSize SizeOf(const ExpertMatrices& expert) {
  ExpertSize size;
  for (const kernels::Weight* weight : {expert.gate_up.get(), expert.down.get()}) {
    size.num_bytes += weight->num_bytes();
    size.num_weights += weight->out_features() * weight->in_features();
  }
  return size;
}

ExpertStore::ExpertStore(int64_t num_layers)
    : sizes_(static_cast<size_t>(num_layers)), slots_(static_cast<size_t>(num_layers)) {}

ExpertStore::ExpertStore(Bound bound)
    : max_bytes_(bound.max_bytes),
      pack_(std::move(bound.pack)),
      sizes_(std::move(bound.sizes)),
      slots_(sizes_.size()),
      by_use_(sizes_.size()) {
  FT_CHECK(is_bounded());
  for (size_t layer = 0; layer < sizes_.size(); ++layer) {
    for (size_t expert = 0; expert < sizes_[layer].size(); ++expert) {
      FT_CHECK(sizes_[layer][expert].num_bytes <= max_bytes_);
      slots_[layer].push_back({.layer_idx = static_cast<int32_t>(layer), .expert_idx = static_cast<int32_t>(expert)});
    }
  }
}

void ExpertStore::Keep(int32_t layer_idx, ExpertMatrices expert) {
  FT_CHECK(!is_bounded());
  const ExpertSize size = SizeOf(expert);
  const auto expert_idx = static_cast<int32_t>(sizes_[layer_idx].size());
  sizes_[layer_idx].push_back(size);
  slots_[layer_idx].push_back({.layer_idx = layer_idx, .expert_idx = expert_idx, .matrices = std::move(expert)});
  num_bytes_ += size.num_bytes;
}

kernels::Expert ExpertStore::Get(int32_t layer_idx, int32_t expert_idx) {
  Slot& slot = slots_[layer_idx][expert_idx];
  if (slot.matrices.gate_up == nullptr) {
    Load(slot);
  } else if (is_bounded()) {
    std::list<Slot*>& of_layer = by_use_[layer_idx];
    of_layer.splice(of_layer.begin(), of_layer, slot.position);
  }
  return {.gate_up = slot.matrices.gate_up.get(),
          .down = slot.matrices.down.get(),
          .gate_up_bias = slot.matrices.gate_up_bias.f32(),
          .down_bias = slot.matrices.down_bias.f32()};
}

// Room is made first, so that the bound holds while the expert is packed.
void ExpertStore::Load(Slot& slot) {
  while (num_bytes_ + BytesOf(slot) > max_bytes_) DropFor(slot.layer_idx);
  slot.matrices = pack_(slot.layer_idx, slot.expert_idx);
  FT_CHECK(SizeOf(slot.matrices) == sizes_[slot.layer_idx][slot.expert_idx]);
  std::list<Slot*>& of_layer = by_use_[slot.layer_idx];
  slot.position = of_layer.insert(of_layer.begin(), &slot);
  num_bytes_ += BytesOf(slot);
  ++num_loads_;
}

// A pass over many rows uses all experts in a fixed order. Over all layers, the expert whose last use is longest ago is
// then the very one that the pass needs next, and a store that dropped it would miss every time.
void ExpertStore::DropFor(int32_t layer_idx) {
  const auto num_layers = static_cast<int32_t>(by_use_.size());
  int32_t from = layer_idx;
  do {
    from = (from + num_layers - 1) % num_layers;
  } while (by_use_[from].empty() && from != layer_idx);
  FT_CHECK(!by_use_[from].empty());  // a store that holds nothing has room for any expert
  Slot& oldest = *by_use_[from].back();
  by_use_[from].pop_back();
  oldest.matrices = {};
  num_bytes_ -= BytesOf(oldest);
}

}  // namespace foretoken::model
