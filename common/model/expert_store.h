// SPDX-License-Identifier: Apache-2.0
// The packed experts of a rank's layers. A store keeps all of them, or only as many as a bound on their bytes allows.
// With a bound, an expert that is asked for and not there is packed at that moment. To make room, an expert leaves of
// the layer whose turn is furthest away: passes go through the layers in order, so that is the nearest layer before
// this one that holds any. Of its experts that one leaves whose last use is longest ago.
//
//   ExpertStore all(num_layers);
//   all.Keep(layer_idx, std::move(expert));
//   ExpertStore some({.max_bytes = 1 << 30, .sizes = std::move(sizes), .pack = pack});
//   const kernels::Expert expert = some.Get(layer_idx, expert_idx);  // valid until the next Get
//
// Threads: one; any may ask for use().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "common/tensor/tensor.h"
#include "kernels/ops.h"

namespace foretoken::model {

struct ExpertMatrices {
  std::unique_ptr<kernels::Weight> gate_up;  // [2 F, E]
  tensor::Tensor gate_up_bias;               // [2 F] f32, or empty
  std::unique_ptr<kernels::Weight> down;     // [E, F]
  tensor::Tensor down_bias;                  // [E] f32, or empty
};

// Of an expert's two matrices as they are packed.
struct ExpertSize {
  size_t num_bytes = 0;
  int64_t num_weights = 0;

  friend bool operator==(const ExpertSize&, const ExpertSize&) = default;
};
ExpertSize SizeOf(const ExpertMatrices& expert);

// [L][N]; empty for a layer without experts.
using ExpertSizes = std::vector<std::vector<ExpertSize>>;

struct ExpertUse {
  uint64_t num_loads = 0;  // experts that were packed because they were asked for
  size_t num_bytes = 0;    // of the matrices that are held
};

class ExpertStore {
 public:
  using Pack = std::function<ExpertMatrices(int32_t layer_idx, int32_t expert_idx)>;
  struct Bound {
    size_t max_bytes = 0;  // that the held matrices may take; at least the largest expert's
    ExpertSizes sizes;
    Pack pack;  // makes an expert of the size that `sizes` says
  };

  // Without a bound: holds the experts that Keep gives it.
  explicit ExpertStore(int64_t num_layers);
  // With a bound: holds none at first.
  explicit ExpertStore(Bound bound);

  // Adds the next expert of a layer.
  void Keep(int32_t layer_idx, ExpertMatrices expert);
  kernels::Expert Get(int32_t layer_idx, int32_t expert_idx);

  // Of all experts, held or not.
  const ExpertSizes& sizes() const { return sizes_; }
  ExpertUse use() const { return {.num_loads = num_loads_, .num_bytes = num_bytes_}; }

 private:
  struct Slot {
    int32_t layer_idx = 0;
    int32_t expert_idx = 0;
    ExpertMatrices matrices;              // null: not held
    std::list<Slot*>::iterator position;  // in the layer's list in by_use_, of a held expert of a bounded store
  };

  bool is_bounded() const { return pack_ != nullptr; }
  size_t BytesOf(const Slot& slot) const { return sizes_[slot.layer_idx][slot.expert_idx].num_bytes; }
  void Load(Slot& slot);
  // Drops an expert that a pass needs last after one of this layer.
  void DropFor(int32_t layer_idx);

  const size_t max_bytes_ = 0;
  const Pack pack_;  // null: no bound
  ExpertSizes sizes_;
  std::vector<std::vector<Slot>> slots_;  // [L][N]
  std::vector<std::list<Slot*>> by_use_;  // [L] the held experts of a bounded store, the last used one first
  std::atomic<uint64_t> num_loads_ = 0;
  std::atomic<size_t> num_bytes_ = 0;
};

}  // namespace foretoken::model
