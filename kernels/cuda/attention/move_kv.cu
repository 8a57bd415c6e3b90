// SPDX-License-Identifier: Apache-2.0
// Two kernels, so that all slots are read before any is written: the first copies the slots aside, the second copies
// them to their places. One block per (move, part of a layer), with its threads side by side along a head's dimensions.
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

// Some of the moves, and the memory that holds their slots' elements between the kernels: [moves, L, 2, K, D].
struct StagedMoves {
  KvCacheView kv;
  uint16_t* staged = nullptr;
  KvMove moves[kMovesPerLaunch];
};

__device__ uint16_t* CachedElement(const KvCacheView& kv, int32_t slot, int32_t element) {
  uint16_t* part = kv.part(static_cast<int32_t>(blockIdx.y / 2), static_cast<int32_t>(blockIdx.y % 2));
  return part + kv.slot_offset(slot, element / kv.head_dim) + element % kv.head_dim;
}

__device__ uint16_t* StagedElements(const StagedMoves& staged) {
  const int64_t part = int64_t{blockIdx.x} * gridDim.y + blockIdx.y;
  return staged.staged + part * staged.kv.num_kv_heads * staged.kv.head_dim;
}

__global__ void CopyAside(StagedMoves staged) {
  const int32_t count = staged.kv.num_kv_heads * staged.kv.head_dim, slot = staged.moves[blockIdx.x].from_slot;
  uint16_t* to = StagedElements(staged);
  for (int32_t i = threadIdx.x; i < count; i += kThreads) to[i] = *CachedElement(staged.kv, slot, i);
}

__global__ void CopyIntoPlace(StagedMoves staged) {
  const int32_t count = staged.kv.num_kv_heads * staged.kv.head_dim, slot = staged.moves[blockIdx.x].to_slot;
  const uint16_t* from = StagedElements(staged);
  for (int32_t i = threadIdx.x; i < count; i += kThreads) *CachedElement(staged.kv, slot, i) = from[i];
}

// Launches the kernel for all moves.
void LaunchForAll(void (*kernel)(StagedMoves), const MoveKvArgs& args, uint16_t* staged, cudaStream_t stream) {
  const KvCacheView& kv = args.kv;
  const size_t slot_elements = size_t{2} * kv.num_layers * kv.num_kv_heads * kv.head_dim;
  for (size_t first = 0; first < args.moves.size(); first += kMovesPerLaunch) {
    const std::span<const KvMove> some =
        args.moves.subspan(first, std::min(kMovesPerLaunch, args.moves.size() - first));
    StagedMoves work{.kv = kv, .staged = staged + first * slot_elements};
    std::copy(some.begin(), some.end(), work.moves);
    const dim3 grid(static_cast<unsigned>(some.size()), static_cast<unsigned>(2 * kv.num_layers));
    FT_CUDA_CHECK(Launch(kernel, {.grid = grid, .block = dim3(kThreads), .stream = stream}, work));
  }
}

}  // namespace

void MoveKv(const MoveKvArgs& args, cudaStream_t stream) {
  if (args.moves.empty()) return;
  const KvCacheView& kv = args.kv;
  const size_t slot_bytes = size_t{2} * kv.num_layers * kv.num_kv_heads * kv.head_dim * sizeof(uint16_t);
  const StreamScratch scratch(args.moves.size() * slot_bytes, stream);
  auto* staged = static_cast<uint16_t*>(scratch.data());
  LaunchForAll(CopyAside, args, staged, stream);
  LaunchForAll(CopyIntoPlace, args, staged, stream);
}

}  // namespace foretoken::kernels::cuda
