// SPDX-License-Identifier: Apache-2.0
// Copies a tile of K and V from the paged cache to shared memory, and loads it from there as operands of products. A
// copy runs while other tiles are computed. The caller gives the place of each key.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/attention_queries.cuh"
#include "kernels/cuda/base/mma.cuh"
#include "kernels/cuda/base/ptx.cuh"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

inline constexpr int kBlocksPerTile = kAttentionTile / kKvBlockSize;
static_assert(kAttentionTile % kKvBlockSize == 0);

// K and V of one layer and head.
struct HeadCache {
  KvCacheView kv;
  const uint16_t* k = nullptr;
  const uint16_t* v = nullptr;
  int32_t kv_head = 0;

  __device__ HeadCache(const AttentionArgs& args, int32_t kv_head)
      : kv(args.kv), k(kv.part(args.layer, 0)), v(kv.part(args.layer, 1)), kv_head(kv_head) {}
  // kv.slot_offset, with 32 bits as long as they suffice: a GPU has fewer than 2^32 token's heads in its memory.
  __device__ size_t Offset(int32_t slot) const {
    const auto at = static_cast<uint32_t>(slot);
    const uint32_t token_head = (at / kKvBlockSize * kv.num_kv_heads + kv_head) * kKvBlockSize + at % kKvBlockSize;
    return size_t{token_head} * static_cast<uint32_t>(kv.head_dim);
  }
};

// A tile in shared memory. Zeros fill its dimensions up to whole steps. A chunk is eight elements, 16 bytes.
template <int kSteps>
struct SharedTile {
  static constexpr int kChunkElements = 8;
  static constexpr int kChunks = kSteps * kMmaDepth / kChunkElements;
  static constexpr int kStrideChunks = (kChunks + 7) / 8 * 8;

  uint16_t k[kAttentionTile * kStrideChunks * kChunkElements];
  uint16_t v[kAttentionTile * kStrideChunks * kChunkElements];

  // Eight consecutive keys have a chunk in eight different places of their 128 bytes, so no two are in the same banks.
  // A step has two chunks, and four steps are 128 bytes.
  static __device__ unsigned Offset(unsigned key, unsigned step, unsigned chunk_of_step) {
    const unsigned place = step % 4 * 2 ^ (key % 8 ^ chunk_of_step);
    return (key * kStrideChunks + step / 4 * 8 + place) * kChunkElements;
  }

  // LoadMatrices takes the addresses of matrix i's rows from lanes [8 i, 8 i + 8).
  __device__ void LoadK(int half, int step, FragmentB& low, FragmentB& high) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads, matrix = lane / 8;
    const int key = half * kMmaDepth + matrix / 2 * kMmaColumns + lane % 8;
    uint32_t matrices[4];
    ptx::LoadMatrices(matrices, k + Offset(key, step, matrix % 2));
    low = {{matrices[0], matrices[1]}};
    high = {{matrices[2], matrices[3]}};
  }
  __device__ void LoadV(int half, int step, FragmentB& low, FragmentB& high) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads, matrix = lane / 8;
    const int key = half * kMmaDepth + matrix % 2 * 8 + lane % 8;
    uint32_t matrices[4];
    ptx::LoadTransposedMatrices(matrices, v + Offset(key, step, matrix / 2));
    low = {{matrices[0], matrices[1]}};
    high = {{matrices[2], matrices[3]}};
  }
};

// The blocks of the table that hold a tile, as far as a given end position.
struct TileBlocks {
  int32_t blocks[kBlocksPerTile] = {};

  TileBlocks() = default;
  __device__ TileBlocks(const int32_t* block_table, int32_t tile, int32_t end_position) {
    const int32_t end_block = (end_position + kKvBlockSize - 1) / kKvBlockSize;
#pragma unroll
    for (int i = 0; i < kBlocksPerTile; ++i) {
      if (tile * kBlocksPerTile + i < end_block) blocks[i] = block_table[tile * kBlocksPerTile + i];
    }
  }
  __device__ int32_t SlotOf(int key) const {
    int32_t block = blocks[0];  // chosen and not indexed, because an index would put the blocks into local memory
#pragma unroll
    for (int i = 1; i < kBlocksPerTile; ++i) block = key >= i * kKvBlockSize ? blocks[i] : block;
    return block * kKvBlockSize + key % kKvBlockSize;
  }
};

// Copies element by element and waits, for heads whose keys do not all lie on 16-byte boundaries.
template <int kThreads, int kSteps, typename OffsetOf>
__device__ void CopyElements(const HeadCache& cache, const Positions& there, const OffsetOf& offset_of,
                             SharedTile<kSteps>& to) {
  constexpr int kChunkElements = SharedTile<kSteps>::kChunkElements, kDims = kSteps * kMmaDepth;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % kThreads; i < kAttentionTile * kDims; i += kThreads) {
    const int key = i / kDims, dim = i % kDims;
    const int offset =
        SharedTile<kSteps>::Offset(key, dim / kMmaDepth, dim % kMmaDepth / kChunkElements) + dim % kChunkElements;
    const bool is_there = there.Has(key) && dim < cache.kv.head_dim;
    const size_t from = is_there ? offset_of(key) + dim : 0;
    to.k[offset] = is_there ? cache.k[from] : 0;
    to.v[offset] = is_there ? cache.v[from] : 0;
  }
}

// Starts to copy the tile's keys `there`, counted from its first, and fills the rest with zeros. Each group of kThreads
// consecutive threads of the block copies a tile. offset_of(key) is the place of a key in `there`, and any place in the
// cache for other keys. A thread copies the same chunk of several keys.
template <int kThreads, int kSteps, typename OffsetOf>
__device__ void StartCopy(const HeadCache& cache, const Positions& there, const OffsetOf& offset_of,
                          SharedTile<kSteps>& to) {
  using Tile = SharedTile<kSteps>;
  constexpr int kChunkElements = Tile::kChunkElements, kKeysAtOnce = kThreads / Tile::kStrideChunks;
  static_assert(kThreads % Tile::kStrideChunks == 0 && kAttentionTile % kKeysAtOnce == 0);
  if (cache.kv.head_dim % kChunkElements != 0) {
    CopyElements<kThreads>(cache, there, offset_of, to);
    return;
  }
  const auto chunk = static_cast<int>(threadIdx.x % Tile::kStrideChunks);
  const auto first_key = static_cast<int>(threadIdx.x % kThreads / Tile::kStrideChunks);
  if (chunk >= Tile::kChunks) return;
  const bool has_dims = chunk * kChunkElements < cache.kv.head_dim;
  const uint16_t* const k = cache.k + (has_dims ? chunk * kChunkElements : 0);
  const uint16_t* const v = cache.v + (has_dims ? chunk * kChunkElements : 0);
#pragma unroll 4
  for (int i = 0; i < kAttentionTile; i += kKeysAtOnce) {
    const int key = first_key + i;
    const unsigned offset = Tile::Offset(key, static_cast<unsigned>(chunk) / 2, static_cast<unsigned>(chunk) % 2);
    const uint32_t num_bytes = has_dims && there.Has(key) ? kChunkElements * sizeof(uint16_t) : 0;
    const size_t from = offset_of(key);
    ptx::CopyAsync16(to.k + offset, k + from, num_bytes);
    ptx::CopyAsync16(to.v + offset, v + from, num_bytes);
  }
}

}  // namespace foretoken::kernels::cuda
