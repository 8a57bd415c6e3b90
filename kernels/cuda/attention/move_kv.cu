// SPDX-License-Identifier: Apache-2.0
// Two kernels, so that all slots are read before any is written: the first copies the slots aside, the second copies
// them to their places. One block per (move, part of a layer), with its threads side by side along the units of its
// heads: two bytes, which are an element of bf16, or two codes, or half of a scale.
// Bytes moved: each twice. The moves are an argument of the launch, so that no copy of the host's memory is pending
// when the op returns.
#include <algorithm>
#include <span>

#include "kernels/cuda/attention/move_kv.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/base/stream_scratch.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 128;

constexpr size_t kMovesPerLaunch = 256;  // 2 KiB of the 4 KiB that a launch's arguments may take

// How many units a head of a token has: of elements alone, and with the scale, whose units come after the elements'.
FT_HOST_DEVICE int32_t ElementUnits(const KvCacheView& kv) {
  return static_cast<int32_t>(kv.bytes_per_token_head() / sizeof(uint16_t));
}
FT_HOST_DEVICE int32_t HeadUnits(const KvCacheView& kv) {
  return ElementUnits(kv) + static_cast<int32_t>(kv.has_scales() ? sizeof(float) / sizeof(uint16_t) : 0);
}

// Some of the moves, and the memory that holds their slots between the kernels: [moves, L, 2, K, HeadUnits].
struct StagedMoves {
  KvCacheView kv;
  uint16_t* staged = nullptr;
  KvMove moves[kMovesPerLaunch];
};

__device__ uint16_t* CachedUnit(const KvCacheView& kv, int32_t slot, int32_t unit) {
  const auto layer = static_cast<int32_t>(blockIdx.y / 2), part = static_cast<int32_t>(blockIdx.y % 2);
  const int32_t head = unit / HeadUnits(kv), of_head = unit % HeadUnits(kv), element_units = ElementUnits(kv);
  if (of_head >= element_units) {
    return reinterpret_cast<uint16_t*>(kv.scale(layer, part, slot, head)) + of_head - element_units;
  }
  return reinterpret_cast<uint16_t*>(kv.elements(layer, part, slot, head)) + of_head;
}

__device__ uint16_t* StagedUnits(const StagedMoves& staged) {
  const int64_t part = int64_t{blockIdx.x} * gridDim.y + blockIdx.y;
  return staged.staged + part * staged.kv.num_kv_heads * HeadUnits(staged.kv);
}

__global__ void CopyAside(StagedMoves staged) {
  const int32_t count = staged.kv.num_kv_heads * HeadUnits(staged.kv), slot = staged.moves[blockIdx.x].from_slot;
  uint16_t* to = StagedUnits(staged);
  for (int32_t i = threadIdx.x; i < count; i += kThreads) to[i] = *CachedUnit(staged.kv, slot, i);
}

__global__ void CopyIntoPlace(StagedMoves staged) {
  const int32_t count = staged.kv.num_kv_heads * HeadUnits(staged.kv), slot = staged.moves[blockIdx.x].to_slot;
  const uint16_t* from = StagedUnits(staged);
  for (int32_t i = threadIdx.x; i < count; i += kThreads) *CachedUnit(staged.kv, slot, i) = from[i];
}

// Launches the kernel for all moves.
void LaunchForAll(void (*kernel)(StagedMoves), const MoveKvArgs& args, uint16_t* staged, cudaStream_t stream) {
  const KvCacheView& kv = args.kv;
  const size_t slot_units = size_t{2} * kv.num_layers * kv.num_kv_heads * HeadUnits(kv);
  for (size_t first = 0; first < args.moves.size(); first += kMovesPerLaunch) {
    const std::span<const KvMove> some =
        args.moves.subspan(first, std::min(kMovesPerLaunch, args.moves.size() - first));
    StagedMoves work{.kv = kv, .staged = staged + first * slot_units};
    std::copy(some.begin(), some.end(), work.moves);
    const dim3 grid(static_cast<unsigned>(some.size()), static_cast<unsigned>(2 * kv.num_layers));
    FT_CUDA_CHECK(Launch(kernel, {.grid = grid, .block = dim3(kThreads), .stream = stream}, work));
  }
}

}  // namespace

void MoveKv(const MoveKvArgs& args, cudaStream_t stream) {
  if (args.moves.empty()) return;
  const KvCacheView& kv = args.kv;
  const size_t slot_bytes = size_t{2} * kv.num_layers * kv.num_kv_heads * HeadUnits(kv) * sizeof(uint16_t);
  const StreamScratch scratch(args.moves.size() * slot_bytes, stream);
  auto* staged = static_cast<uint16_t*>(scratch.data());
  LaunchForAll(CopyAside, args, staged, stream);
  LaunchForAll(CopyIntoPlace, args, staged, stream);
}

}  // namespace foretoken::kernels::cuda
