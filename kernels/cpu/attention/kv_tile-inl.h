// SPDX-License-Identifier: Apache-2.0
// One attention tile of one kv head, widened to f32 and multiplied with the scales of 8 bits. Keys are transposed, so
// that a vector spans positions; values are not, so that a vector spans dimensions. Highway compiles this file once per
// instruction set.
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
  KvCacheView kv;
  int32_t layer = 0;
  int32_t kv_head = 0;
  size_t head_dim = 0;      // D
  size_t value_stride = 0;  // D rounded up to whole vectors; the pad stays zero

  float* keys = nullptr;        // [D, kAttentionTile]
  float* values = nullptr;      // [kAttentionTile, value_stride]
  uint32_t* staging = nullptr;  // [D / 2, kKvBlockSize]
  uint16_t* codes = nullptr;    // [kKvBlockSize, D] keys of 8 bits as bf16, which holds them exactly

  // The block to prefetch while another one is loaded. Blocks lie anywhere, so the hardware cannot foresee the next
  // one.
  int32_t next_block = 0;

  uint64_t loaded = 0;  // bit i: column i holds slots[i]
  std::array<int32_t, kAttentionTile> slots = {};
};
static_assert(kAttentionTile == 64 && kAttentionTile % kKvBlockSize == 0);

// Prefetches a part of the next block: the elements of the token at `offset`, and the scales with the first one's.
inline void PrefetchToken(const KvTile& tile, int32_t part, int32_t offset) {
  const int32_t slot = tile.next_block * kKvBlockSize + offset;
  const uint8_t* elements = tile.kv.elements(tile.layer, part, slot, tile.kv_head);
  for (size_t byte = 0; byte < tile.kv.bytes_per_token_head(); byte += 64) hwy::Prefetch(elements + byte);
  if (tile.kv.has_scales() && offset == 0) hwy::Prefetch(tile.kv.scale(tile.layer, part, slot, tile.kv_head));
}

// What codes are multiplied with. bf16 has no scales; to multiply with 1 changes no bit.
inline float ScaleOf(const KvTile& tile, int32_t part, int32_t slot) {
  return tile.kv.has_scales() ? *tile.kv.scale(tile.layer, part, slot, tile.kv_head) : 1.0f;
}

// Elements d, d + 1, ... as f32, without their scale.
template <KvCacheDtype kDtype>
inline HWY_ATTR FloatVec LoadCodes(const uint8_t* elements, size_t d) {
  if constexpr (kDtype == KvCacheDtype::kBf16) {
    return LoadBf16(reinterpret_cast<const uint16_t*>(elements) + d);
  } else if constexpr (kDtype == KvCacheDtype::kInt8) {
    const hn::Rebind<int8_t, FloatTag> byte_tag;
    const hn::Rebind<int32_t, FloatTag> word_tag;
    return hn::ConvertTo(kFloat,
                         hn::PromoteTo(word_tag, hn::LoadU(byte_tag, reinterpret_cast<const int8_t*>(elements) + d)));
  } else {  // as FloatFromE4m3
    const hn::Rebind<uint8_t, FloatTag> byte_tag;
    const hn::Rebind<uint32_t, FloatTag> word_tag;
    const auto code = hn::PromoteTo(word_tag, hn::LoadU(byte_tag, elements + d));
    const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(word_tag, 0x80u)));
    const auto magnitude = hn::ShiftLeft<20>(hn::And(code, hn::Set(word_tag, 0x7fu)));
    return hn::Mul(hn::BitCast(kFloat, hn::Or(sign, magnitude)), hn::Set(kFloat, 0x1p120f));
  }
}

template <KvCacheDtype kDtype>
inline float LoadCode(const uint8_t* elements, size_t d) {
  if constexpr (kDtype == KvCacheDtype::kBf16) {
    return FloatFromBf16(reinterpret_cast<const uint16_t*>(elements)[d]);
  } else if constexpr (kDtype == KvCacheDtype::kInt8) {
    return static_cast<float>(static_cast<int8_t>(elements[d]));
  } else {
    return FloatFromE4m3(elements[d]);
  }
}

template <KvCacheDtype kDtype>
inline HWY_ATTR void LoadValues(const KvTile& tile, int32_t slot, size_t column) {
  const uint8_t* from = tile.kv.elements(tile.layer, 1, slot, tile.kv_head);
  const float scale = ScaleOf(tile, 1, slot);
  float* to = tile.values + column * tile.value_stride;
  const size_t lanes = NumLanes();
  size_t d = 0;
  for (; d + lanes <= tile.head_dim; d += lanes) {
    hn::Store(hn::Mul(LoadCodes<kDtype>(from, d), hn::Set(kFloat, scale)), kFloat, to + d);
  }
  for (; d < tile.head_dim; ++d) to[d] = LoadCode<kDtype>(from, d) * scale;
}

template <KvCacheDtype kDtype>
inline void LoadKeyColumn(const KvTile& tile, int32_t slot, size_t column) {
  const uint8_t* from = tile.kv.elements(tile.layer, 0, slot, tile.kv_head);
  const float scale = ScaleOf(tile, 0, slot);
  for (size_t d = 0; d < tile.head_dim; ++d) {
    tile.keys[d * kAttentionTile + column] = LoadCode<kDtype>(from, d) * scale;
  }
}

#if HWY_TARGET == HWY_SCALAR
inline constexpr bool kHasBlocks = false;
template <KvCacheDtype kDtype>
inline void LoadKeyBlock(const KvTile&, int32_t, size_t) {}
#else
inline constexpr bool kHasBlocks = true;
// Stores the even and the odd dimension of a vector of (even, odd) bf16 pairs, one pair per position, multiplied with
// the positions' scales.
template <class V>
HWY_ATTR void StoreKeyPair(V pairs, FloatVec scales, float* even_row) {
  const hn::Rebind<uint32_t, FloatTag> word_tag;
  const FloatVec even = hn::BitCast(kFloat, hn::ShiftLeft<16>(pairs));
  const FloatVec odd = hn::BitCast(kFloat, hn::And(pairs, hn::Set(word_tag, 0xffff0000u)));
  hn::Store(hn::Mul(even, scales), kFloat, even_row);
  hn::Store(hn::Mul(odd, scales), kFloat, even_row + kAttentionTile);
}

// The keys of a block as bf16, [kKvBlockSize, D], without their scales.
template <KvCacheDtype kDtype>
inline HWY_ATTR const uint16_t* KeyCodes(const KvTile& tile, int32_t block) {
  const uint8_t* from = tile.kv.block_head(tile.layer, 0, block, tile.kv_head);
  if constexpr (kDtype == KvCacheDtype::kBf16) return reinterpret_cast<const uint16_t*>(from);
  const size_t count = kKvBlockSize * tile.head_dim;  // a multiple of 128, as D is one of 8
  for (size_t i = 0; i < count; i += NumLanes()) StoreBf16(LoadCodes<kDtype>(from, i), tile.codes + i);
  return tile.codes;
}

// Transposes a block of keys, [kKvBlockSize, D] with D a multiple of 8. It first puts the 16-byte pieces of four
// positions 4 b + i into a vector i, as its 128-bit blocks b. Then it transposes each block as a 4 x 4 matrix of pairs.
template <KvCacheDtype kDtype>
inline HWY_ATTR void LoadKeyBlock(const KvTile& tile, int32_t block, size_t column) {
  const uint16_t* from = KeyCodes<kDtype>(tile, block);
  alignas(64) float scales[kKvBlockSize];
  for (int32_t i = 0; i < kKvBlockSize; ++i) scales[i] = ScaleOf(tile, 0, block * kKvBlockSize + i);
  constexpr size_t kPiece = 8;  // dimensions in 16 bytes
  const size_t num_pieces = tile.head_dim / kPiece;
  for (size_t position = 0; position < kKvBlockSize; ++position) {
    PrefetchToken(tile, 0, static_cast<int32_t>(position));
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
      const FloatVec scale = hn::Load(kFloat, scales + p);
      const auto store = [&](auto pairs, size_t dim) HWY_ATTR {
        StoreKeyPair(hn::BitCast(word_tag, pairs), scale, to + dim * kAttentionTile + p);
      };
      store(hn::InterleaveLower(long_tag, ab_low, cd_low), 0);
      store(hn::InterleaveUpper(long_tag, ab_low, cd_low), 2);
      store(hn::InterleaveLower(long_tag, ab_high, cd_high), 4);
      store(hn::InterleaveUpper(long_tag, ab_high, cd_high), 6);
    }
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

template <KvCacheDtype kDtype>
inline HWY_ATTR void LoadColumn(KvTile& tile, int32_t slot, size_t column) {
  if ((tile.loaded >> column & 1) != 0 && tile.slots[column] == slot) return;
  LoadKeyColumn<kDtype>(tile, slot, column);
  LoadValues<kDtype>(tile, slot, column);
  tile.slots[column] = slot;
  tile.loaded |= uint64_t{1} << column;
}

// Fills the columns of a whole block. It loads columns that the row does not see too; the row masks them.
template <KvCacheDtype kDtype>
inline HWY_ATTR void LoadBlock(KvTile& tile, int32_t block, size_t column) {
  constexpr uint64_t kMask = (uint64_t{1} << kKvBlockSize) - 1;
  const int32_t first_slot = block * kKvBlockSize;
  bool held = (tile.loaded >> column & kMask) == kMask;
  for (int i = 0; i < kKvBlockSize && held; ++i) held = tile.slots[column + i] == first_slot + i;
  if (held) return;
  if (!kHasBlocks || tile.head_dim % 8 != 0) {
    for (int i = 0; i < kKvBlockSize; ++i) LoadColumn<kDtype>(tile, first_slot + i, column + i);
    return;
  }
  LoadKeyBlock<kDtype>(tile, block, column);
  for (int i = 0; i < kKvBlockSize; ++i) {
    PrefetchToken(tile, 1, i);
    LoadValues<kDtype>(tile, first_slot + i, column + i);
    tile.slots[column + i] = first_slot + i;
  }
  tile.loaded |= kMask << column;
}

struct RowKeys {
  const int32_t* block_table = nullptr;
  const int32_t* ancestor_slots = nullptr;
  int32_t chain_len = 0;
};
template <KvCacheDtype kDtype>
inline HWY_ATTR void LoadPositions(KvTile& tile, const RowKeys& row, int32_t tile_begin, int32_t begin, int32_t end) {
  const int32_t chain_end = std::min(end, row.chain_len);
  for (int32_t block = begin / kKvBlockSize; block * kKvBlockSize < chain_end; ++block) {
    const int32_t ahead = std::min(block + kAttentionTile / kKvBlockSize, (row.chain_len - 1) / kKvBlockSize);
    tile.next_block = row.block_table[ahead];
    LoadBlock<kDtype>(tile, row.block_table[block], block * kKvBlockSize - tile_begin);
  }
  for (int32_t position = std::max(begin, row.chain_len); position < end; ++position) {
    LoadColumn<kDtype>(tile, row.ancestor_slots[position - row.chain_len], position - tile_begin);
  }
}

// Loads the row's positions [begin, end) into the tile that starts at position `tile_begin`.
inline HWY_ATTR void LoadForRow(KvTile& tile, const RowKeys& row, int32_t tile_begin, int32_t begin, int32_t end) {
  switch (tile.kv.dtype) {
    case KvCacheDtype::kBf16:
      return LoadPositions<KvCacheDtype::kBf16>(tile, row, tile_begin, begin, end);
    case KvCacheDtype::kInt8:
      return LoadPositions<KvCacheDtype::kInt8>(tile, row, tile_begin, begin, end);
    case KvCacheDtype::kFp8:
      return LoadPositions<KvCacheDtype::kFp8>(tile, row, tile_begin, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // FORETOKEN_KERNELS_CPU_KV_TILE_INL_H_
