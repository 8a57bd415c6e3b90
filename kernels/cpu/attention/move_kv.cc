// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/move_kv.h"

#include <cstring>

#include "kernels/cpu/base/workspace.h"

namespace foretoken::kernels::cpu {

void MoveKv(const MoveKvArgs& args, ThreadPool& pool) {
  const KvCacheView& kv = args.kv;
  if (args.moves.empty()) return;
  const size_t head_stride = size_t{kKvBlockSize} * kv.head_dim;
  const size_t head_bytes = size_t{2} * kv.head_dim;
  // Layers, and K and V, are independent, so a task stages the K or the V of a layer whole.
  pool.ParallelFor(int64_t{2} * kv.num_layers, [&](int64_t task, int) {
    uint16_t* part = kv.part(static_cast<int32_t>(task / 2), static_cast<int32_t>(task % 2));
    uint16_t* const staging = ThreadWorkspace<uint16_t>(args.moves.size() * kv.num_kv_heads * kv.head_dim);
    uint16_t* staged = staging;
    for (const KvMove& move : args.moves) {
      const uint16_t* from = part + kv.slot_offset(move.from_slot, 0);
      for (int32_t head = 0; head < kv.num_kv_heads; ++head, staged += kv.head_dim) {
        std::memcpy(staged, from + head * head_stride, head_bytes);
      }
    }
    staged = staging;
    for (const KvMove& move : args.moves) {
      uint16_t* to = part + kv.slot_offset(move.to_slot, 0);
      for (int32_t head = 0; head < kv.num_kv_heads; ++head, staged += kv.head_dim) {
        std::memcpy(to + head * head_stride, staged, head_bytes);
      }
    }
  });
}

}  // namespace foretoken::kernels::cpu
