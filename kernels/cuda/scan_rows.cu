// SPDX-License-Identifier: Apache-2.0
// A block per (tile, row), sixteen tokens a thread. Bytes moved: every logit once. A tile is small, so that one row
// makes 63 blocks of a 128k vocabulary; it stays in registers while its largest logit is found and then while scores
// are, so noise costs no second read.
//
// Most tokens cannot win, and that is cheap to see, as on the CPU: the tile's largest logit has a score already, and
// whoever would lose to it even with the largest noise, or with a bound on its noise, is spared Philox or the
// logarithms. Only true losers are passed over, so what is found does not depend on it.
#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_tile.cuh"
#include "kernels/cuda/scan_rows.h"
#include "kernels/cuda/settle_row.cuh"
#include "kernels/cuda/token_noise.cuh"

namespace foretoken::kernels::cuda {
namespace {

// By plain logits.
__device__ TileScan LargestOfTile(const RowTile& tile, TileScan* scratch) {
  TileScan best = NothingScanned();
  ForEachToken(tile, [&](float x, int32_t id) {
    best.is_finite = best.is_finite && x < std::numeric_limits<float>::infinity();
    if (x > best.max) best = {.score = x, .max = x, .id = id, .is_finite = best.is_finite};
  });
  return BlockFold<kTileThreads>(best, BetterScan(), scratch);
}

// One group against the best so far. `best_gap` is the best score less the scaled largest logit of the tile, in f32.
__device__ void ChallengeGroup(const RowTask& task, const FilterCut& cut, const TokenGroup& group, int32_t first_id,
                               TileScan& best, float& best_gap) {
  const auto gap_of = [&](float x) { return (x - best.max) * task.inverse_temperature; };
  const float largest = fmaxf(fmaxf(group.values[0], group.values[1]), fmaxf(group.values[2], group.values[3]));
  if (!(gap_of(largest) + kLargestNoise >= best_gap)) return;
  const PhiloxBlock words = NoiseWords(task, first_id);
  for (int i = 0; i < kGroupTokens; ++i) {
    const float x = group.values[i];
    const int32_t id = first_id + i;
    if (!(gap_of(x) + GumbelBound(words[i]) >= best_gap) || !cut.Keeps(x, id)) continue;
    const float noise = GumbelOf(words[i]);
    const double score = double{x} * task.inverse_temperature + noise;
    if (score < best.score || (score == best.score && id > best.id)) continue;
    best.score = score;
    best.id = id;
    best_gap = gap_of(x) + noise;
  }
}

// By score. `largest` is what LargestOfTile found; without it in the cut nothing of the tile is.
__device__ TileScan BestOfTile(const RowTask& task, const FilterCut& cut, const RowTile& tile, const TileScan& largest,
                               TileScan* scratch) {
  __shared__ float noise_of_largest;
  if (largest.max == kImpossible || !cut.Keeps(largest.max, largest.id)) {
    TileScan none = NothingScanned();
    none.max = largest.max;
    none.is_finite = largest.is_finite;
    return none;
  }
  if (threadIdx.x == 0) noise_of_largest = NoiseOf(task, largest.id);
  __syncthreads();
  TileScan best = largest;
  best.score = double{largest.max} * task.inverse_temperature + noise_of_largest;
  float best_gap = noise_of_largest;
#pragma unroll
  for (int group = 0; group < kGroupsPerThread; ++group) {
    ChallengeGroup(task, cut, tile.groups[group], FirstIdOfGroup(group), best, best_gap);
  }
  return BlockFold<kTileThreads>(best, BetterScan(), scratch);
}

enum class ScanStage { kFirst, kCut };

__global__ void __launch_bounds__(kTileThreads) ScanTile(RowWork work, ScanStage stage) {
  __shared__ TileScan scratch[kTileThreads];
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
  TileScan best = LargestOfTile(tile, scratch);
  if (has_noise && best.is_finite) best = BestOfTile(task, cut, tile, best, scratch);
  if (threadIdx.x == 0) work.scans[int64_t{row} * work.num_tiles + blockIdx.x] = best;
}

__global__ void __launch_bounds__(kWarpThreads) SettleRow(RowWork work) {
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

void SettleRows(const RowBatch& batch) {
  const LaunchShape shape{.grid = batch.work().row_grid(), .block = dim3(kWarpThreads), .stream = batch.stream()};
  FT_CUDA_CHECK(Launch(SettleRow, shape, batch.work()));
}

}  // namespace foretoken::kernels::cuda
