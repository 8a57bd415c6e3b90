// SPDX-License-Identifier: Apache-2.0
// AMX's tile registers in plain C++, a policy of kernels/cpu/matmul/amx_tiles.h.
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, TDPBF16PS and TDPBSUD.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/check.h"
#include "kernels/cpu/matmul/amx_tiles.h"
#include "kernels/dtype.h"

namespace foretoken::testing {

struct EmulatedTileState {
  bool is_configured = false;
  kernels::cpu::TileConfig config;
  std::array<std::array<uint8_t, 1024>, 8> bytes{};
};

class EmulatedTiles {
 public:
  static void Configure(const kernels::cpu::TileConfig& config) {
    state = {.is_configured = true, .config = config, .bytes = {}};
  }
  static void Release() { state = {}; }

  template <int kTile>
  static void Zero() {
    CheckUsable(kTile);
    state.bytes[kTile] = {};
  }

  template <int kTile>
  static void Load(const void* rows, int64_t stride_bytes) {
    Zero<kTile>();
    for (int r = 0; r < state.config.num_rows[kTile]; ++r) {
      std::memcpy(Row(kTile, r), static_cast<const char*>(rows) + r * stride_bytes, state.config.row_bytes[kTile]);
    }
  }

  template <int kTile>
  static void Store(void* rows, int64_t stride_bytes) {
    CheckUsable(kTile);
    for (int r = 0; r < state.config.num_rows[kTile]; ++r) {
      std::memcpy(static_cast<char*>(rows) + r * stride_bytes, Row(kTile, r), state.config.row_bytes[kTile]);
    }
  }

  // Sums the first inputs of the pairs and the second inputs separately, and then adds both to the accumulator.
  template <int kAcc, int kA, int kB>
  static void MultiplyAddBf16() {
    const int num_pairs = CheckProduct<kAcc, kA, kB>();
    for (int m = 0; m < state.config.num_rows[kAcc]; ++m) {
      for (int n = 0; n < state.config.row_bytes[kAcc] / 4; ++n) {
        std::array<float, 2> sums = {0, 0};
        for (int k = 0; k < num_pairs; ++k) {
          for (int i = 0; i < 2; ++i) {
            sums[i] = Flush(std::fma(Input(kA, m, 2 * k + i), Input(kB, k, 2 * n + i), sums[i]));
          }
        }
        float acc;
        std::memcpy(&acc, Row(kAcc, m) + 4 * n, 4);
        acc = Flush(Flush(acc) + Flush(sums[0] + sums[1]));
        std::memcpy(Row(kAcc, m) + 4 * n, &acc, 4);
      }
    }
  }

  template <int kAcc, int kA, int kB>
  static void MultiplyAddBytes() {
    const int num_quads = CheckProduct<kAcc, kA, kB>();
    for (int m = 0; m < state.config.num_rows[kAcc]; ++m) {
      for (int n = 0; n < state.config.row_bytes[kAcc] / 4; ++n) {
        int32_t acc;
        std::memcpy(&acc, Row(kAcc, m) + 4 * n, 4);
        for (int k = 0; k < 4 * num_quads; ++k) {
          acc += static_cast<int8_t>(Row(kA, m)[k]) * int32_t{Row(kB, k / 4)[4 * n + k % 4]};
        }
        std::memcpy(Row(kAcc, m) + 4 * n, &acc, 4);
      }
    }
  }

 private:
  static void CheckUsable(int tile) {
    FT_CHECK(state.is_configured && state.config.palette == 1);
    FT_CHECK(state.config.num_rows[tile] >= 1 && state.config.num_rows[tile] <= 16);
    FT_CHECK(state.config.row_bytes[tile] >= 1 && state.config.row_bytes[tile] <= 64);
  }

  // Returns the words of 32 bits in a row of A.
  template <int kAcc, int kA, int kB>
  static int CheckProduct() {
    for (const int tile : {kAcc, kA, kB}) CheckUsable(tile);
    const int num_words = state.config.row_bytes[kA] / 4;
    FT_CHECK(state.config.num_rows[kA] == state.config.num_rows[kAcc]);
    FT_CHECK(state.config.num_rows[kB] == num_words && state.config.row_bytes[kB] == state.config.row_bytes[kAcc]);
    return num_words;
  }

  static uint8_t* Row(int tile, int row) { return state.bytes[tile].data() + row * 64; }

  static float Input(int tile, int row, int column) {
    uint16_t bits;
    std::memcpy(&bits, Row(tile, row) + 2 * column, 2);
    return Flush(kernels::FloatFromBf16(bits));
  }

  // Denormal inputs and results become zeros for any MXCSR.
  static float Flush(float value) {
    return std::abs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value) : value;
  }

  static inline thread_local EmulatedTileState state;
};

}  // namespace foretoken::testing
