// SPDX-License-Identifier: Apache-2.0
// The tile registers of AMX. Tile logic is written over a policy for them, so that tests can run it on an emulation:
//
// struct Tiles {
//   static void Configure(const TileConfig&);  static void Release();
//   template <int kTile> static void Zero();
//   template <int kTile> static void Load(const void* rows, int64_t stride_bytes);
//   template <int kTile> static void Store(void* rows, int64_t stride_bytes);
//   template <int kAcc, int kA, int kB> static void MultiplyAddBf16();
//   template <int kAcc, int kA, int kB> static void MultiplyAddBytes();  // A's bytes are signed, B's unsigned
// };
#pragma once

#include <cstdint>

namespace foretoken::kernels::cpu {

inline constexpr int kTileRows = 16;
inline constexpr int kTileRowBytes = 64;

// The operand of ldtilecfg.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t num_rows[16] = {};

  void Set(int tile, int64_t rows, int64_t bytes = kTileRowBytes) {
    row_bytes[tile] = static_cast<uint16_t>(bytes);
    num_rows[tile] = static_cast<uint8_t>(rows);
  }
};
static_assert(sizeof(TileConfig) == 64);

#if defined(__x86_64__)

// In assembly, because a compiler's intrinsics take the tile number only as a literal, never as a template argument.
struct TileRegisters {
  static void Configure(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
  static void Release() { asm volatile("tilerelease"); }

  template <int kTile>
  static void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }

  template <int kTile>
  static void Load(const void* rows, int64_t stride_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(stride_bytes), "i"(kTile) : "memory");
  }

  template <int kTile>
  static void Store(void* rows, int64_t stride_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(rows), "r"(stride_bytes), "i"(kTile) : "memory");
  }

  template <int kAcc, int kA, int kB>
  static void MultiplyAddBf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kAcc), "i"(kA), "i"(kB));
  }

  template <int kAcc, int kA, int kB>
  static void MultiplyAddBytes() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kAcc), "i"(kA), "i"(kB));
  }
};

#endif

}  // namespace foretoken::kernels::cpu
