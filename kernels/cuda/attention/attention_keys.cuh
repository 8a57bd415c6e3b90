// SPDX-License-Identifier: Apache-2.0
// Copies a tile of K and V from the paged cache to shared memory, and loads it from there as operands of products. A
// copy runs while other tiles are computed. The caller gives the place of each key. Keys in 8 bits become bf16 as they
// are copied, and the copying thread waits. So attention gives the bits that a cache of bf16 with these values would
// give.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/attention_queries.cuh"
#include "kernels/cuda/base/mma.cuh"
#include "kernels/cuda/base/ptx.cuh"
#include "kernels/dtype.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

inline constexpr int kBlocksPerTile = kAttentionTile / kKvBlockSize;
static_assert(kAttentionTile % kKvBlockSize == 0);

// K and V of one layer and head. A key's place is its number among the layer's heads of tokens: a GPU has fewer than
// 2^32 of them in its memory.
struct HeadCache {
  KvCacheView kv;
  const uint8_t* k = nullptr;
  const uint8_t* v = nullptr;
  int32_t kv_head = 0;

  __device__ HeadCache(const AttentionArgs& args, int32_t kv_head)
      : kv(args.kv), k(kv.part_bytes(args.layer, 0)), v(kv.part_bytes(args.layer, 1)), kv_head(kv_head) {}
  __device__ uint32_t PlaceOf(int32_t slot) const {
    const auto at = static_cast<uint32_t>(slot);
    return (at / kKvBlockSize * kv.num_kv_heads + kv_head) * kKvBlockSize + at % kKvBlockSize;
  }
  // A key's elements in bf16, of `part`, which is k or v.
  __device__ const uint16_t* Bf16At(const uint8_t* part, uint32_t place) const {
    return reinterpret_cast<const uint16_t*>(part) + size_t{place} * static_cast<uint32_t>(kv.head_dim);
  }
  // Its codes in 8 bits, and their scale.
  __device__ const uint8_t* CodesAt(const uint8_t* part, uint32_t place) const {
    return part + place / kKvBlockSize * kv.bytes_per_block_head() + place % kKvBlockSize * kv.bytes_per_token_head();
  }
  __device__ float ScaleAt(const uint8_t* part, uint32_t place) const {
    const uint8_t* block_end = part + (place / kKvBlockSize + size_t{1}) * kv.bytes_per_block_head();
    return (reinterpret_cast<const float*>(block_end) - kKvBlockSize)[place % kKvBlockSize];
  }
  __device__ uint16_t Widened(uint8_t code, float scale) const {
    const float value =
        kv.dtype == KvCacheDtype::kInt8 ? static_cast<float>(static_cast<int8_t>(code)) : FloatFromE4m3(code);
    return Bf16FromFloat(scale * value);
  }
  __device__ uint16_t ElementAt(const uint8_t* part, uint32_t place, int dim) const {
    if (!kv.has_scales()) return Bf16At(part, place)[dim];
    return Widened(CodesAt(part, place)[dim], ScaleAt(part, place));
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
template <int kThreads, int kSteps, typename PlaceOf>
__device__ void CopyElements(const HeadCache& cache, const Positions& there, const PlaceOf& place_of,
                             SharedTile<kSteps>& to) {
  constexpr int kChunkElements = SharedTile<kSteps>::kChunkElements, kDims = kSteps * kMmaDepth;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % kThreads; i < kAttentionTile * kDims; i += kThreads) {
    const int key = i / kDims, dim = i % kDims;
    const int offset =
        SharedTile<kSteps>::Offset(key, dim / kMmaDepth, dim % kMmaDepth / kChunkElements) + dim % kChunkElements;
    const bool is_there = there.Has(key) && dim < cache.kv.head_dim;
    to.k[offset] = is_there ? cache.ElementAt(cache.k, place_of(key), dim) : 0;
    to.v[offset] = is_there ? cache.ElementAt(cache.v, place_of(key), dim) : 0;
  }
}

// Copies and widens eight codes at a time, and waits. The reads of up to four keys come before the first is needed.
template <int kThreads, int kSteps, typename PlaceOf>
__device__ void CopyCodes(const HeadCache& cache, const Positions& there, const PlaceOf& place_of,
                          SharedTile<kSteps>& to) {
  using Tile = SharedTile<kSteps>;
  constexpr int kChunkCodes = Tile::kChunkElements, kKeysAtOnce = kThreads / Tile::kStrideChunks;
  struct alignas(8) CodeChunk {
    uint8_t codes[kChunkCodes];
  };
  struct alignas(16) WideChunk {
    uint16_t elements[kChunkCodes];
  };
  constexpr int kThreadKeys = kAttentionTile / kKeysAtOnce;
  constexpr int kReads = 2 * (kThreadKeys < 4 ? kThreadKeys : 4);  // of K and V in turn
  static_assert(2 * kThreadKeys % kReads == 0);
  const auto chunk = static_cast<int>(threadIdx.x % Tile::kStrideChunks);
  const auto first_key = static_cast<int>(threadIdx.x % kThreads / Tile::kStrideChunks);
  if (chunk >= Tile::kChunks) return;
  const bool has_dims = chunk * kChunkCodes < cache.kv.head_dim;
#pragma unroll 1
  for (int begin = first_key; begin < kAttentionTile; begin += kKeysAtOnce * kReads / 2) {
    CodeChunk codes[kReads];
    float scales[kReads];
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      const uint8_t* const part = i % 2 == 0 ? cache.k : cache.v;
      const uint32_t place = place_of(begin + i / 2 * kKeysAtOnce);
      const uint8_t* const from = cache.CodesAt(part, place) + (has_dims ? chunk * kChunkCodes : 0);
      codes[i] = *reinterpret_cast<const CodeChunk*>(from);
      scales[i] = cache.ScaleAt(part, place);
    }
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      const int key = begin + i / 2 * kKeysAtOnce;
      const bool is_there = has_dims && there.Has(key);
      WideChunk wide;
#pragma unroll
      for (int at = 0; at < kChunkCodes; ++at) {
        wide.elements[at] = is_there ? cache.Widened(codes[i].codes[at], scales[i]) : uint16_t{0};
      }
      const unsigned offset = Tile::Offset(key, static_cast<unsigned>(chunk) / 2, static_cast<unsigned>(chunk) % 2);
      *reinterpret_cast<WideChunk*>((i % 2 == 0 ? to.k : to.v) + offset) = wide;
    }
  }
}

// Starts to copy the tile's keys `there`, counted from its first, and fills the rest with zeros. Each group of kThreads
// consecutive threads of the block copies a tile. place_of(key) is the place of a key in `there`, and any place in the
// cache for other keys. A thread copies the same chunk of several keys.
template <int kThreads, int kSteps, typename PlaceOf>
__device__ void StartCopy(const HeadCache& cache, const Positions& there, const PlaceOf& place_of,
                          SharedTile<kSteps>& to) {
  using Tile = SharedTile<kSteps>;
  constexpr int kChunkElements = Tile::kChunkElements, kKeysAtOnce = kThreads / Tile::kStrideChunks;
  static_assert(kThreads % Tile::kStrideChunks == 0 && kAttentionTile % kKeysAtOnce == 0);
  if (cache.kv.head_dim % kChunkElements != 0) {
    CopyElements<kThreads>(cache, there, place_of, to);
    return;
  }
  if (cache.kv.has_scales()) {
    CopyCodes<kThreads>(cache, there, place_of, to);
    return;
  }
  const auto chunk = static_cast<int>(threadIdx.x % Tile::kStrideChunks);
  const auto first_key = static_cast<int>(threadIdx.x % kThreads / Tile::kStrideChunks);
  if (chunk >= Tile::kChunks) return;
  const bool has_dims = chunk * kChunkElements < cache.kv.head_dim;
  const int first_dim = has_dims ? chunk * kChunkElements : 0;
#pragma unroll 4
  for (int i = 0; i < kAttentionTile; i += kKeysAtOnce) {
    const int key = first_key + i;
    const unsigned offset = Tile::Offset(key, static_cast<unsigned>(chunk) / 2, static_cast<unsigned>(chunk) % 2);
    const uint32_t num_bytes = has_dims && there.Has(key) ? kChunkElements * sizeof(uint16_t) : 0;
    const uint32_t place = place_of(key);
    ptx::CopyAsync16(to.k + offset, cache.Bf16At(cache.k, place) + first_dim, num_bytes);
    ptx::CopyAsync16(to.v + offset, cache.Bf16At(cache.v, place) + first_dim, num_bytes);
  }
}

}  // namespace foretoken::kernels::cuda
