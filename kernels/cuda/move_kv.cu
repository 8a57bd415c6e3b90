// SPDX-License-Identifier: Apache-2.0
// Two kernels, so that all is read before anything is written: one copies the slots aside, the next to their places. A
// block per (move, part of a layer), its threads side by side along a head's dimensions. Bytes moved: each twice.
#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/move_kv.h"
#include "kernels/cuda/stream_scratch.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// The slots' elements, aside: [moves, L, 2, K, D].
struct StagedMoves {
  KvCacheView kv;
  const KvMove* moves = nullptr;
  uint16_t* staged = nullptr;
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

}  // namespace

void MoveKv(const MoveKvArgs& args, cudaStream_t stream) {
  if (args.moves.empty()) return;
  const KvCacheView& kv = args.kv;
  const size_t slot_bytes = size_t{2} * kv.num_layers * kv.num_kv_heads * kv.head_dim * sizeof(uint16_t);
  const StreamScratch moves(args.moves.size_bytes(), stream), staged(args.moves.size() * slot_bytes, stream);
  FT_CUDA_CHECK(
      cudaMemcpyAsync(moves.data(), args.moves.data(), args.moves.size_bytes(), cudaMemcpyHostToDevice, stream));
  const StagedMoves work{
      .kv = kv, .moves = static_cast<const KvMove*>(moves.data()), .staged = static_cast<uint16_t*>(staged.data())};
  const dim3 grid(static_cast<unsigned>(args.moves.size()), static_cast<unsigned>(2 * kv.num_layers));
  FT_CUDA_CHECK(Launch(CopyAside, {.grid = grid, .block = dim3(kThreads), .stream = stream}, work));
  FT_CUDA_CHECK(Launch(CopyIntoPlace, {.grid = grid, .block = dim3(kThreads), .stream = stream}, work));
}

}  // namespace foretoken::kernels::cuda
