// SPDX-License-Identifier: Apache-2.0
// A block per (tile, row); then a warp per row adds the tiles. Bytes moved: every logit once.
#include <cmath>

#include "kernels/cuda/base/block_fold.cuh"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/draw/fixed_weight.cuh"
#include "kernels/cuda/draw/row_tile.cuh"
#include "kernels/cuda/draw/weigh_rows.h"

namespace foretoken::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kTileThreads) WeighTile(RowWork work) {
  __shared__ FixedWeight scratch[kTileThreads];
  const auto row = static_cast<int32_t>(blockIdx.y);
  if (!IsDrawable(work, row)) return;
  const RowTask& task = work.tasks[row];
  const RowState state = work.states[row];
  FixedWeight sum = 0;
  ForEachToken(LoadTile(task.logits, work.num_tokens), [&](float x, int32_t id) {
    if (state.cut.Keeps(x, id)) sum += WeightOf(x, state.max, task.inverse_temperature);
  });
  sum = BlockFold<kTileThreads>(sum, Plus(), scratch);
  if (threadIdx.x == 0) work.tile_weights[int64_t{row} * work.num_tiles + blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kWarpThreads) AddTiles(RowWork work, RowTotal* totals) {
  __shared__ FixedWeight scratch[kWarpThreads];
  const auto row = static_cast<int32_t>(blockIdx.x);
  if (!IsWanted(work.tasks[row])) return;
  const RowState& state = work.states[row];
  FixedWeight sum = 0;
  if (state.status == DrawStatus::kOk) {
    for (auto tile = static_cast<int32_t>(threadIdx.x); tile < work.num_tiles; tile += kWarpThreads) {
      sum += work.tile_weights[int64_t{row} * work.num_tiles + tile];
    }
  }
  sum = BlockFold<kWarpThreads>(sum, Plus(), scratch);
  if (threadIdx.x == 0) totals[row] = {.status = state.status, .max = state.max, .weight = sum};
}

}  // namespace

void WeighRows(const RowBatch& batch) {
  const LaunchShape shape{.grid = batch.work().tile_grid(), .block = dim3(kTileThreads), .stream = batch.stream()};
  FT_CUDA_CHECK(Launch(WeighTile, shape, batch.work()));
}

const RowTotal* TotalRows(const RowBatch& batch, Device& device) {
  const size_t num_bytes = batch.tasks().size() * sizeof(RowTotal);
  if (num_bytes == 0) return nullptr;
  const StreamScratch totals(num_bytes, batch.stream());
  const LaunchShape shape{.grid = batch.work().row_grid(), .block = dim3(kWarpThreads), .stream = batch.stream()};
  FT_CUDA_CHECK(Launch(AddTiles, shape, batch.work(), static_cast<RowTotal*>(totals.data())));
  return static_cast<const RowTotal*>(device.Download(totals.data(), num_bytes));
}

double RowTotal::log_weight() const { return std::log(static_cast<double>(weight) / kWeightOne); }

}  // namespace foretoken::kernels::cuda
