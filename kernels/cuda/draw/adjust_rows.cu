// SPDX-License-Identifier: Apache-2.0
// Two kernels. First a block per (tile, row) copies the row and applies the mask. Then a block per row changes the few
// entries of bias and penalties, one thread each. The mask may come first, because neither bias nor penalty lifts -inf.
// Bytes moved: the logits in and out.
#include <limits>

#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/draw/adjust_rows.h"
#include "kernels/cuda/draw/row_tile.cuh"

namespace foretoken::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kTileThreads) CopyMaskedTile(AdjustRowsArgs args) {
  constexpr int kWordBits = 32;
  const RowAdjustment& row = args.rows[blockIdx.y];
  ForEachToken(LoadTile(row.from, args.num_tokens), [&](float x, int32_t id) {
    if (id >= args.num_tokens) return;
    const bool is_allowed = row.mask == nullptr || (row.mask[id / kWordBits] >> id % kWordBits & 1) != 0;
    const bool hides = !is_allowed && x < std::numeric_limits<float>::infinity();
    row.to[id] = hides ? kImpossible : x;
  });
}

__device__ int32_t CountOnPath(const AdjustRowsArgs& args, const RowAdjustment& row, int32_t token_id) {
  int32_t count = 0;
  for (int32_t node = row.node; node != row.root; node = row.root + args.parents[node]) {
    if (args.token_ids[node] == token_id) ++count;
  }
  return count;
}

__device__ float Penalized(const RowAdjustment& row, float logit, int32_t num_generated) {
  logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
  if (num_generated == 0) return logit;
  logit -= row.frequency_penalty * static_cast<float>(num_generated);
  return logit - row.presence_penalty;
}

__global__ void __launch_bounds__(kTileThreads) EditRow(AdjustRowsArgs args) {
  const RowAdjustment& row = args.rows[blockIdx.x];
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = row.bias_begin + thread; i < row.bias_end; i += kTileThreads) {
    row.to[args.bias[i].token_id] += args.bias[i].bias;
  }
  __syncthreads();
  for (int32_t i = row.counts_begin + thread; i < row.counts_end; i += kTileThreads) {
    const TokenCount& count = args.counts[i];
    const int32_t on_path = CountOnPath(args, row, count.token_id);
    if (i >= row.path_begin && on_path == 0) continue;
    row.to[count.token_id] = Penalized(row, row.to[count.token_id], count.num_generated + on_path);
  }
}

}  // namespace

void AdjustRows(const AdjustRowsArgs& args, cudaStream_t stream) {
  const auto num_rows = static_cast<unsigned>(args.num_rows);
  const auto num_tiles = static_cast<unsigned>((args.num_tokens + kTileTokens - 1) / kTileTokens);
  const LaunchShape tiles{.grid = dim3(num_tiles, num_rows), .block = dim3(kTileThreads), .stream = stream};
  FT_CUDA_CHECK(Launch(CopyMaskedTile, tiles, args));
  const LaunchShape rows{.grid = dim3(num_rows), .block = dim3(kTileThreads), .stream = stream};
  FT_CUDA_CHECK(Launch(EditRow, rows, args));
}

}  // namespace foretoken::kernels::cuda
