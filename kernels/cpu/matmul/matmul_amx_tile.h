// SPDX-License-Identifier: Apache-2.0
// The AMX kernel's tile logic, over a policy for the eight tile registers, so that tests can run it on an emulation.
//
// A panel already is a row of B tiles: 16 pairs x 16 outputs are 1 KiB, consecutive. x is packed as A tiles of up to 16
// rows x 32 inputs each. An accumulator tile holds 16 rows x 16 outputs. Up to four are in use at a time: a
// multiplication takes 52 cycles, but the next one to another accumulator can start after 16.
//   up to 16 rows: accumulators 0..3 are panels, A is 4, B is 5
//   up to 32 rows: accumulators 0..3 are (rows 0..15, 16..31) x 2 panels, A is 4 and 6, B is 5
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/matmul/amx_tiles.h"
#include "kernels/cpu/matmul/matmul_kernel.h"
#include "kernels/cpu/matmul/weight.h"

namespace foretoken::kernels::cpu {

inline constexpr int kTileInputs = 32;
static_assert(kTileInputs == kInputsPadding && kTileRowBytes == 2 * kPanelWidth * sizeof(uint16_t));

template <typename Tiles>
struct AmxTile {
  static constexpr int64_t kPanelTileBytes = kTileRows * kTileRowBytes;

  template <int kAcc>
  static void MultiplyPanel(const MatMulTile& tile, int64_t panel, int64_t step) {
    if (panel >= tile.num_panels) return;
    const auto* weights = reinterpret_cast<const char*>(tile.panels + panel * tile.panel_bytes);
    Tiles::template Load<5>(weights + step * kPanelTileBytes, kTileRowBytes);
    Tiles::template MultiplyAddBf16<kAcc, 4, 5>();
    if constexpr (kAcc < 2) {
      if (tile.num_rows > kTileRows) Tiles::template MultiplyAddBf16<kAcc + 2, 6, 5>();
    }
  }

  // The place of accumulator kAcc in `sums`; null if the tile has no such rows or panel.
  template <int kAcc>
  static float* SumsOf(const MatMulTile& tile) {
    const bool two_row_tiles = tile.num_rows > kTileRows;
    const int64_t row = two_row_tiles ? kAcc / 2 * kTileRows : 0;
    const int64_t panel = two_row_tiles ? kAcc % 2 : kAcc;
    return panel < tile.num_panels ? tile.sums + row * tile.sums_stride + panel * kPanelWidth : nullptr;
  }

  template <int kAcc>
  static void StartSums(const MatMulTile& tile) {
    const float* sums = SumsOf<kAcc>(tile);
    if (sums == nullptr) return;
    if (tile.first_input == 0) {
      Tiles::template Zero<kAcc>();
    } else {
      Tiles::template Load<kAcc>(sums, tile.sums_stride * sizeof(float));
    }
  }

  template <int kAcc>
  static void StoreSums(const MatMulTile& tile) {
    float* sums = SumsOf<kAcc>(tile);
    if (sums != nullptr) Tiles::template Store<kAcc>(sums, tile.sums_stride * sizeof(float));
  }

  static void Configure(int64_t num_rows) {
    TileConfig config;
    const int64_t upper = std::min<int64_t>(num_rows, kTileRows);
    const int64_t lower = num_rows - upper;
    for (const int tile : {0, 1, 4}) config.Set(tile, upper);
    for (const int tile : {2, 3}) config.Set(tile, lower != 0 ? lower : upper);
    config.Set(5, kTileRows);
    if (lower != 0) config.Set(6, lower);
    Tiles::Configure(config);
  }

  // At most 32 rows; at most 4 panels, 2 from 17 rows on.
  static void Multiply(const MatMulTile& tile) {
    Configure(tile.num_rows);
    StartSums<0>(tile);
    StartSums<1>(tile);
    StartSums<2>(tile);
    StartSums<3>(tile);
    const bool two_row_tiles = tile.num_rows > kTileRows;
    const auto* upper = static_cast<const char*>(tile.x);
    const int64_t upper_bytes = std::min<int64_t>(tile.num_rows, kTileRows) * kTileRowBytes;
    const char* lower = upper + tile.padded_num_inputs / kTileInputs * upper_bytes;
    const int64_t lower_bytes = tile.num_rows * kTileRowBytes - upper_bytes;
    for (int64_t step = tile.first_input / kTileInputs; step < tile.end_input / kTileInputs; ++step) {
      Tiles::template Load<4>(upper + step * upper_bytes, kTileRowBytes);
      if (two_row_tiles) Tiles::template Load<6>(lower + step * lower_bytes, kTileRowBytes);
      MultiplyPanel<0>(tile, 0, step);
      MultiplyPanel<1>(tile, 1, step);
      if (!two_row_tiles) {
        MultiplyPanel<2>(tile, 2, step);
        MultiplyPanel<3>(tile, 3, step);
      }
    }
    StoreSums<0>(tile);
    StoreSums<1>(tile);
    StoreSums<2>(tile);
    StoreSums<3>(tile);
    Tiles::Release();
  }

  static MatMulTileShape TileShape(int64_t num_rows) {
    if (num_rows <= kTileRows) return {num_rows, 4, 4};
    return {2 * kTileRows, 2, 2};
  }

  static constexpr MatMulKernel kKernel = {
      .packed_bytes_per_input = sizeof(uint16_t), .tile_shape = TileShape, .pack = PackBf16, .multiply = Multiply};
};

}  // namespace foretoken::kernels::cpu
