// SPDX-License-Identifier: Apache-2.0
// A block per (tile, row), with sixteen tokens per thread.
// Bytes moved: every logit once. A tile is small, so that one row of a 128k vocabulary makes 63 blocks. It stays in
// registers while its largest logit is found and then its scores, so noise costs no second read.
//
// Most tokens cannot win, and cheap tests show it, as on the CPU. The tile's largest logit already has a score. A token
// that would lose to it even with the largest noise skips Philox, and a token that would lose with a bound on its own
// noise skips the logarithms. Only certain losers are skipped, so the result does not change.
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/draw/merge_scans.cuh"
#include "kernels/cuda/draw/row_tile.cuh"
#include "kernels/cuda/draw/scan_rows.h"
#include "kernels/cuda/draw/token_key.cuh"
#include "kernels/cuda/draw/token_noise.cuh"

namespace foretoken::kernels::cuda {
namespace {

// Orders by plain logits. A token that is not finite has a key before all others.
__device__ TileScan LargestOfTile(const RowTile& tile) {
  __shared__ uint64_t scratch[kTileThreads];
  constexpr uint64_t kNotFinite = 0;
  float max = kImpossible;
  int32_t max_id = FirstIdOfGroup(0);
  bool is_finite = true;
  ForEachToken(tile, [&](float x, int32_t id) {
    is_finite = is_finite && x < std::numeric_limits<float>::infinity();
    max_id = x > max ? id : max_id;
    max = fmaxf(max, x);
  });
  const uint64_t first = BlockFold<kTileThreads>(
      is_finite ? TokenKey(max, max_id) : kNotFinite, [](uint64_t a, uint64_t b) { return a < b ? a : b; }, scratch);
  const float value = ValueOfToken(first);
  return {.score = value, .max = value, .id = IdOfToken(first), .is_finite = first != kNotFinite};
}

// Finds the thread's tokens that may have a better score than the tile's largest logit, whose noise is given. Bit i is
// entry i of the thread's groups.
__device__ uint32_t FindContenders(const RowTask& task, const RowTile& tile, float max, float noise_of_max) {
  const auto gap_of = [&](float x) { return (x - max) * task.inverse_temperature; };
  uint32_t contenders = 0;
#pragma unroll
  for (int group = 0; group < kGroupsPerThread; ++group) {
    const float* x = tile.groups[group].values;
    const float largest = fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3]));
    if (gap_of(largest) + kLargestNoise < noise_of_max) continue;
    const PhiloxBlock words = NoiseWords(task, FirstIdOfGroup(group));
#pragma unroll
    for (int i = 0; i < kGroupTokens; ++i) {
      const bool may_win = gap_of(x[i]) + GumbelBound(words[i]) >= noise_of_max;
      contenders |= static_cast<uint32_t>(may_win) << (group * kGroupTokens + i);
    }
  }
  return contenders;
}

__device__ double ScoreOf(const RowTask& task, float x, float noise) {
  return double{x} * task.inverse_temperature + noise;
}

// Orders by score. `largest` is the result of LargestOfTile. If the cut does not keep it, it keeps nothing of the tile.
__device__ TileScan BestOfTile(const RowTask& task, const FilterCut& cut, const RowTile& tile,
                               const TileScan& largest) {
  __shared__ TileScan scratch[kTileThreads];
  __shared__ float noise_of_largest;
  TileScan best = largest;
  best.score = kImpossible;
  best.id = std::numeric_limits<int32_t>::max();
  if (largest.max == kImpossible || !cut.Keeps(largest.max, largest.id)) return best;
  if (threadIdx.x == 0) noise_of_largest = NoiseOf(task, largest.id);
  __syncthreads();
  const uint32_t contenders = FindContenders(task, tile, largest.max, noise_of_largest);
  for (int entry = 0; contenders >> entry != 0; ++entry) {
    if ((contenders >> entry & 1) == 0) continue;
    // Few tokens come here. They are read again, so that the other tokens' logits and words can stay in registers.
    const int32_t id = FirstIdOfGroup(entry / kGroupTokens) + entry % kGroupTokens;
    const float x = task.logits[id];
    if (!cut.Keeps(x, id)) continue;
    const double score = ScoreOf(task, x, NoiseOf(task, id));
    if (score > best.score) {
      best.score = score;
      best.id = id;
    }
  }
  return BlockFold<kTileThreads>(best, BetterScan(), scratch);
}

enum class ScanStage { kFirst, kCut };

__global__ void __launch_bounds__(kTileThreads) ScanTile(RowWork work, ScanStage stage) {
  const auto row = static_cast<int32_t>(blockIdx.y);
  const RowTask& task = work.tasks[row];
  if (!IsWanted(task)) return;
  FilterCut cut;
  bool has_noise = task.has_noise && !task.has_cut();
  if (stage == ScanStage::kCut) {
    if (!task.has_noise || !task.has_cut() || work.states[row].status != DrawStatus::kOk) return;
    cut = work.states[row].cut;
    has_noise = true;
  }
  const RowTile tile = LoadTile(task.logits, work.num_tokens);
  TileScan best = LargestOfTile(tile);
  if (has_noise && best.is_finite) best = BestOfTile(task, cut, tile, best);
  if (threadIdx.x == 0) work.scans[int64_t{row} * work.num_tiles + blockIdx.x] = best;
}

__global__ void __launch_bounds__(kWarpThreads) MergeRowScans(RowWork work) {
  __shared__ TileScan scratch[kWarpThreads];
  const auto row = static_cast<int32_t>(blockIdx.x);
  if (!IsWanted(work.tasks[row])) return;
  const TileScan best = MergeTiles<kWarpThreads>(work, row, scratch);
  RowState state{.status = StatusOf(best), .max = best.max};
  if (work.tasks[row].is_greedy) state.cut = {best.max, best.id};
  if (threadIdx.x == 0) work.states[row] = state;
}

void Scan(const RowBatch& batch, ScanStage stage) {
  const LaunchShape shape{.grid = batch.work().tile_grid(), .block = dim3(kTileThreads), .stream = batch.stream()};
  FT_CUDA_CHECK(Launch(ScanTile, shape, batch.work(), stage));
}

}  // namespace

void ScanRows(const RowBatch& batch) { Scan(batch, ScanStage::kFirst); }
void ScanCutRows(const RowBatch& batch) { Scan(batch, ScanStage::kCut); }

void MergeScans(const RowBatch& batch) {
  const LaunchShape shape{.grid = batch.work().row_grid(), .block = dim3(kWarpThreads), .stream = batch.stream()};
  FT_CUDA_CHECK(Launch(MergeRowScans, shape, batch.work()));
}

}  // namespace foretoken::kernels::cuda
