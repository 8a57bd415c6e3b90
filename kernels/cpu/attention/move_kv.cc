// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/move_kv.h"

#include <cstring>

#include "kernels/cpu/base/workspace.h"

namespace foretoken::kernels::cpu {

void MoveKv(const MoveKvArgs& args, ThreadPool& pool) {
  const KvCacheView& kv = args.kv;
  if (args.moves.empty()) return;
  const size_t head_bytes = kv.bytes_per_token_head(), scale_bytes = kv.has_scales() ? sizeof(float) : 0;
  // Layers, and K and V, are independent, so a task stages the K or the V of a layer whole.
  pool.ParallelFor(int64_t{2} * kv.num_layers, [&](int64_t task, int) {
    const auto layer = static_cast<int32_t>(task / 2), part = static_cast<int32_t>(task % 2);
    uint8_t* const staging = ThreadWorkspace<uint8_t>(args.moves.size() * kv.num_kv_heads * (head_bytes + scale_bytes));
    uint8_t* staged = staging;  // for each move and head: elements, scale
    for (const KvMove& move : args.moves) {
      for (int32_t head = 0; head < kv.num_kv_heads; ++head, staged += head_bytes + scale_bytes) {
        std::memcpy(staged, kv.elements(layer, part, move.from_slot, head), head_bytes);
        std::memcpy(staged + head_bytes, kv.scale(layer, part, move.from_slot, head), scale_bytes);
      }
    }
    staged = staging;
    for (const KvMove& move : args.moves) {
      for (int32_t head = 0; head < kv.num_kv_heads; ++head, staged += head_bytes + scale_bytes) {
        std::memcpy(kv.elements(layer, part, move.to_slot, head), staged, head_bytes);
        std::memcpy(kv.scale(layer, part, move.to_slot, head), staged + head_bytes, scale_bytes);
      }
    }
  });
}

}  // namespace foretoken::kernels::cpu
