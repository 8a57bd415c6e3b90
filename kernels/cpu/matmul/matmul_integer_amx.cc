// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/matmul_integer_amx.h"

#include "kernels/check.h"

#if defined(__x86_64__)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/matmul_integer_amx.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/matmul/integer_panels.h"
#include "kernels/cpu/matmul/integer_rows.h"
#include "kernels/cpu/matmul/matmul_integer_amx-inl.h"
#include "kernels/cpu/matmul/matmul_integer_avx512.h"

HWY_BEFORE_NAMESPACE();
namespace foretoken::kernels::cpu {
namespace HWY_NAMESPACE {

void MultiplyOnTiles(const MatMulTile& tile) { AmxIntegerTile<TileRegisters>::Multiply(tile); }

}  // namespace HWY_NAMESPACE
}  // namespace foretoken::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace foretoken::kernels::cpu {
namespace {

HWY_EXPORT(MultiplyOnTiles);

// As measured (docs/benchmarks.md): what comes back from the tiles to be scaled costs more than they save where groups
// are short, and the widened codes must serve many rows.
constexpr int64_t kMinGroupSize = 64, kMinTileRows = 12;

void Multiply(const MatMulTile& tile) {
  if (tile.num_rows < kMinTileRows) return Avx512IntegerKernel(*tile.integers).multiply(tile);
  HWY_DYNAMIC_DISPATCH(MultiplyOnTiles)(tile);
}

void Pack(const PackArgs& args) { Avx512IntegerKernel(*args.panels).pack(args); }

MatMulTileShape TileShape(int64_t num_rows) {
  const int64_t num_blocks = (num_rows + kTileRows - 1) / kTileRows;
  const int64_t num_panels = num_rows < kMinTileRows ? 1 : 4;  // that share a configuration of the tiles
  return {(num_rows + num_blocks - 1) / num_blocks, num_panels, num_panels};
}

}  // namespace

const MatMulKernel& AmxIntegerKernel(const IntegerPanels& panels) {
  if (panels.group_size < kMinGroupSize) return Avx512IntegerKernel(panels);
  static constexpr MatMulKernel kKernel = {.packed_bytes_per_input = 1,
                                           .packed_bytes_per_group = sizeof(RowGroup),
                                           .tile_shape = TileShape,
                                           .pack = Pack,
                                           .multiply = Multiply};
  return kKernel;
}

}  // namespace foretoken::kernels::cpu
#endif

#else

namespace foretoken::kernels::cpu {

const MatMulKernel& AmxIntegerKernel(const IntegerPanels& /*panels*/) { FT_CHECK(false); }

}  // namespace foretoken::kernels::cpu

#endif
