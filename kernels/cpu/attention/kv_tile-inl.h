// SPDX-License-Identifier: Apache-2.0
// One attention tile of one kv head, widened to f32. Keys are transposed, so that a vector spans positions; values are
// not, so that a vector spans dimensions. Highway compiles this file once per instruction set.
#if defined(FORETOKEN_KERNELS_CPU_KV_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FORETOKEN_KERNELS_CPU_KV_TILE_INL_H_
#undef FORETOKEN_KERNELS_CPU_KV_TILE_INL_H_
#else
#define FORETOKEN_KERNELS_CPU_KV_TILE_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/base/simd-inl.h"
#include "kernels/dtype.h"
#include "kernels/ops.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

// The tile remembers the slot that each column holds, so that a row loads only the columns that its predecessor did
// not. Siblings in a tree share all columns but their own.
struct KvTile {
  const uint16_t* cache_keys = nullptr;  // [num_blocks, K, kKvBlockSize, D] of this layer
  const uint16_t* cache_values = nullptr;
  size_t num_kv_heads = 0;
  size_t kv_head = 0;
  size_t head_dim = 0;      // D
  size_t value_stride = 0;  // D rounded up to whole vectors; the pad stays zero

  float* keys = nullptr;        // [D, kAttentionTile]
  float* values = nullptr;      // [kAttentionTile, value_stride]
  uint32_t* staging = nullptr;  // [D / 2, kKvBlockSize]

  // The block to prefetch while another one is loaded. Blocks lie anywhere, so the hardware cannot foresee the next
  // one.
  size_t next_block_offset = 0;

  uint64_t loaded = 0;  // bit i: column i holds slots[i]
  std::array<int32_t, kAttentionTile> slots = {};
};
static_assert(kAttentionTile == 64 && kAttentionTile % kKvBlockSize == 0);

inline size_t HeadOffset(const KvTile& tile, size_t block) {
  return (block * tile.num_kv_heads + tile.kv_head) * kKvBlockSize * tile.head_dim;
}

// Prefetches one token's elements.
inline void PrefetchToken(const KvTile& tile, const uint16_t* elements) {
  for (size_t d = 0; d < tile.head_dim; d += 64 / sizeof(uint16_t)) hwy::Prefetch(elements + d);
}

inline HWY_ATTR void LoadValues(const KvTile& tile, const uint16_t* from, size_t column) {
  float* to = tile.values + column * tile.value_stride;
  const size_t lanes = NumLanes();
  size_t d = 0;
  for (; d + lanes <= tile.head_dim; d += lanes) hn::Store(LoadBf16(from + d), kFloat, to + d);
  for (; d < tile.head_dim; ++d) to[d] = FloatFromBf16(from[d]);
}

inline void LoadKeyColumn(const KvTile& tile, const uint16_t* from, size_t column) {
  for (size_t d = 0; d < tile.head_dim; ++d) tile.keys[d * kAttentionTile + column] = FloatFromBf16(from[d]);
}

#if HWY_TARGET == HWY_SCALAR
inline constexpr bool kHasBlocks = false;
inline void LoadKeyBlock(const KvTile&, const uint16_t*, size_t) {}
#else
inline constexpr bool kHasBlocks = true;
// Stores the even and the odd dimension of a vector of (even, odd) bf16 pairs, one pair per position.
template <class V>
HWY_ATTR void StoreKeyPair(V pairs, float* even_row) {
  const hn::Rebind<uint32_t, FloatTag> word_tag;
  hn::Store(hn::BitCast(kFloat, hn::ShiftLeft<16>(pairs)), kFloat, even_row);
  hn::Store(hn::BitCast(kFloat, hn::And(pairs, hn::Set(word_tag, 0xffff0000u))), kFloat, even_row + kAttentionTile);
}

// Transposes a block of keys, [kKvBlockSize, D] with D a multiple of 8. It first puts the 16-byte pieces of four
// positions 4 b + i into a vector i, as its 128-bit blocks b. Then it transposes each block as a 4 x 4 matrix of pairs.
inline HWY_ATTR void LoadKeyBlock(const KvTile& tile, const uint16_t* from, size_t column) {
  constexpr size_t kPiece = 8;  // dimensions in 16 bytes
  const size_t num_pieces = tile.head_dim / kPiece;
  for (size_t position = 0; position < kKvBlockSize; ++position) {
    PrefetchToken(tile, tile.cache_keys + tile.next_block_offset + position * tile.head_dim);
    uint32_t* to = tile.staging + (position % 4) * kKvBlockSize + (position / 4) * 4;
    for (size_t piece = 0; piece < num_pieces; ++piece) {
      std::memcpy(to + piece * 4 * kKvBlockSize, from + position * tile.head_dim + piece * kPiece, 16);
    }
  }
  const hn::Rebind<uint32_t, FloatTag> word_tag;
  const hn::Repartition<uint64_t, FloatTag> long_tag;
  for (size_t piece = 0; piece < num_pieces; ++piece) {
    const uint32_t* staged = tile.staging + piece * 4 * kKvBlockSize;
    float* to = tile.keys + piece * kPiece * kAttentionTile + column;
    for (size_t p = 0; p < kKvBlockSize; p += NumLanes()) {
      const auto a = hn::Load(word_tag, staged + p), b = hn::Load(word_tag, staged + kKvBlockSize + p);
      const auto c = hn::Load(word_tag, staged + 2 * kKvBlockSize + p),
                 d = hn::Load(word_tag, staged + 3 * kKvBlockSize + p);
      const auto ab_low = hn::BitCast(long_tag, hn::InterleaveLower(word_tag, a, b));
      const auto ab_high = hn::BitCast(long_tag, hn::InterleaveUpper(word_tag, a, b));
      const auto cd_low = hn::BitCast(long_tag, hn::InterleaveLower(word_tag, c, d));
      const auto cd_high = hn::BitCast(long_tag, hn::InterleaveUpper(word_tag, c, d));
      StoreKeyPair(hn::BitCast(word_tag, hn::InterleaveLower(long_tag, ab_low, cd_low)), to + p);
      StoreKeyPair(hn::BitCast(word_tag, hn::InterleaveUpper(long_tag, ab_low, cd_low)), to + 2 * kAttentionTile + p);
      StoreKeyPair(hn::BitCast(word_tag, hn::InterleaveLower(long_tag, ab_high, cd_high)), to + 4 * kAttentionTile + p);
      StoreKeyPair(hn::BitCast(word_tag, hn::InterleaveUpper(long_tag, ab_high, cd_high)), to + 6 * kAttentionTile + p);
    }
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

inline HWY_ATTR void LoadColumn(KvTile& tile, int32_t slot, size_t column) {
  if ((tile.loaded >> column & 1) != 0 && tile.slots[column] == slot) return;
  const size_t offset = HeadOffset(tile, slot / kKvBlockSize) + (slot % kKvBlockSize) * tile.head_dim;
  LoadKeyColumn(tile, tile.cache_keys + offset, column);
  LoadValues(tile, tile.cache_values + offset, column);
  tile.slots[column] = slot;
  tile.loaded |= uint64_t{1} << column;
}

// Fills the columns of a whole block. It loads columns that the row does not see too; the row masks them.
inline HWY_ATTR void LoadBlock(KvTile& tile, int32_t block, size_t column) {
  constexpr uint64_t kMask = (uint64_t{1} << kKvBlockSize) - 1;
  const int32_t first_slot = block * kKvBlockSize;
  bool held = (tile.loaded >> column & kMask) == kMask;
  for (int i = 0; i < kKvBlockSize && held; ++i) held = tile.slots[column + i] == first_slot + i;
  if (held) return;
  if (!kHasBlocks || tile.head_dim % 8 != 0) {
    for (int i = 0; i < kKvBlockSize; ++i) LoadColumn(tile, first_slot + i, column + i);
    return;
  }
  const size_t offset = HeadOffset(tile, block);
  LoadKeyBlock(tile, tile.cache_keys + offset, column);
  for (int i = 0; i < kKvBlockSize; ++i) {
    PrefetchToken(tile, tile.cache_values + tile.next_block_offset + i * tile.head_dim);
    LoadValues(tile, tile.cache_values + offset + i * tile.head_dim, column + i);
    tile.slots[column + i] = first_slot + i;
  }
  tile.loaded |= kMask << column;
}

// Loads the row's positions [begin, end) into the tile that starts at position `tile_begin`.
struct RowKeys {
  const int32_t* block_table = nullptr;
  const int32_t* ancestor_slots = nullptr;
  int32_t chain_len = 0;
};
inline HWY_ATTR void LoadForRow(KvTile& tile, const RowKeys& row, int32_t tile_begin, int32_t begin, int32_t end) {
  const int32_t chain_end = std::min(end, row.chain_len);
  for (int32_t block = begin / kKvBlockSize; block * kKvBlockSize < chain_end; ++block) {
    const int32_t ahead = std::min(block + kAttentionTile / kKvBlockSize, (row.chain_len - 1) / kKvBlockSize);
    tile.next_block_offset = HeadOffset(tile, row.block_table[ahead]);
    LoadBlock(tile, row.block_table[block], block * kKvBlockSize - tile_begin);
  }
  for (int32_t position = std::max(begin, row.chain_len); position < end; ++position) {
    LoadColumn(tile, row.ancestor_slots[position - row.chain_len], position - tile_begin);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // FORETOKEN_KERNELS_CPU_KV_TILE_INL_H_
