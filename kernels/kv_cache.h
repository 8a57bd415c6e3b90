// SPDX-License-Identifier: Apache-2.0
// The paged K/V cache: where the elements of a token lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/host_device.h"

namespace foretoken::kernels {

// The number of tokens in a K/V block. A slot is block * kKvBlockSize + offset; it holds one token's K and V of every
// layer.
inline constexpr int kKvBlockSize = 16;

// How elements are kept. In 8 bits each token has an f32 scale for each head, of K and of V, and an element is
// scale * code. So the bits of a token's K and V depend on that token's row alone (E1).
enum class KvCacheDtype : uint8_t {
  kBf16,
  kInt8,  // codes in [-127, 127]
  kFp8,   // e4m3
};

// "bf16", "int8" or "fp8".
constexpr KvCacheDtype KvCacheDtypeOf(std::string_view name) {
  return name == "int8" ? KvCacheDtype::kInt8 : name == "fp8" ? KvCacheDtype::kFp8 : KvCacheDtype::kBf16;
}
// A part of a backend's Describe.
constexpr const char* DescribeKvCache(KvCacheDtype dtype) {
  return dtype == KvCacheDtype::kInt8 ? " kv-int8" : dtype == KvCacheDtype::kFp8 ? " kv-fp8" : "";
}

// One allocation: [L, 2, num_blocks, K] heads of a block, K before V. Such a head is [kKvBlockSize, D] elements, and in
// 8 bits [kKvBlockSize] scales behind them. D is even.
struct KvCacheView {
  void* data = nullptr;
  int32_t num_layers = 0;
  int32_t num_blocks = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  KvCacheDtype dtype = KvCacheDtype::kBf16;

  FT_HOST_DEVICE bool has_scales() const { return dtype != KvCacheDtype::kBf16; }
  // The bytes of a token's elements of a head, without its scale.
  FT_HOST_DEVICE size_t bytes_per_token_head() const { return size_t{1} * head_dim * (has_scales() ? 1 : 2); }
  FT_HOST_DEVICE size_t bytes_per_block_head() const {
    return kKvBlockSize * (bytes_per_token_head() + (has_scales() ? sizeof(float) : 0));
  }
  // The bytes of a block's K, or of its V, in one layer.
  FT_HOST_DEVICE size_t bytes_per_block_layer() const { return num_kv_heads * bytes_per_block_head(); }
  size_t num_bytes() const { return size_t{2} * num_layers * num_blocks * bytes_per_block_layer(); }

  // K (part 0) or V (part 1) of a layer: its block 0, head 0.
  FT_HOST_DEVICE uint8_t* part_bytes(int32_t layer, int32_t part) const {
    return static_cast<uint8_t*>(data) + (size_t{2} * layer + part) * num_blocks * bytes_per_block_layer();
  }
  // The elements of a head in a block.
  FT_HOST_DEVICE uint8_t* block_head(int32_t layer, int32_t part, int32_t block, int32_t head) const {
    return part_bytes(layer, part) + (size_t{1} * block * num_kv_heads + head) * bytes_per_block_head();
  }
  // A token's elements of a head.
  FT_HOST_DEVICE uint8_t* elements(int32_t layer, int32_t part, int32_t slot, int32_t head) const {
    return block_head(layer, part, slot / kKvBlockSize, head) + slot % kKvBlockSize * bytes_per_token_head();
  }
  // Their scale, in 8 bits.
  FT_HOST_DEVICE float* scale(int32_t layer, int32_t part, int32_t slot, int32_t head) const {
    uint8_t* scales = block_head(layer, part, slot / kKvBlockSize, head) + kKvBlockSize * bytes_per_token_head();
    return reinterpret_cast<float*>(scales) + slot % kKvBlockSize;
  }
  friend bool operator==(const KvCacheView&, const KvCacheView&) = default;
};

}  // namespace foretoken::kernels
