// SPDX-License-Identifier: Apache-2.0
// A block per (tile, row), with sixteen tokens per thread.
// Bytes moved: every logit once. A tile is small, so that one row of a 128k vocabulary makes 63 blocks. It stays in
// registers while its largest logit is found and then its scores, so noise costs no second read.
//
// Most tokens cannot win, and cheap tests show it, as on the CPU. The tile's largest logit already has a score. A token
// that would lose to it even with the largest noise skips Philox. The others get a bound of their score, and the token
// of the highest bound its score itself. Tokens with a bound below that skip the logarithms. Only certain losers are
// skipped, so the result does not change.
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

constexpr int kTokensPerThread = kGroupsPerThread * kGroupTokens;

// Scores and bounds of scores, above what the tile's largest logit has without noise.
struct TileBounds {
  float bounds[kTokensPerThread];  // of the thread's tokens; kImpossible: the token loses
  float least = 0;                 // the score of one of the block's tokens; a token with a lower bound loses
};

// Bounds the scores of the thread's tokens that the cut keeps and that may beat the tile's largest logit `max`, whose
// noise is given. Every thread of the block calls it.
__device__ TileBounds BoundScores(const RowTask& task, const FilterCut& cut, const RowTile& tile, float max,
                                  float noise_of_max) {
  __shared__ uint64_t scratch[kTileThreads];
  const auto gap_of = [&](float x) { return (x - max) * task.inverse_temperature; };
  TileBounds found{.bounds = {}, .least = noise_of_max};
  uint64_t highest = TokenKey(kImpossible, FirstIdOfGroup(0));
#pragma unroll
  for (int group = 0; group < kGroupsPerThread; ++group) {
    const float* x = tile.groups[group].values;
    const float largest = fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3]));
    const bool may_win = gap_of(largest) + kLargestNoise >= noise_of_max;
    const PhiloxBlock words = may_win ? NoiseWords(task, FirstIdOfGroup(group)) : PhiloxBlock{};
#pragma unroll
    for (int i = 0; i < kGroupTokens; ++i) {
      const int32_t id = FirstIdOfGroup(group) + i;
      const float bound = gap_of(x[i]) + GumbelBound(words[i]);
      const bool stays = may_win && bound >= noise_of_max && cut.Keeps(x[i], id);
      found.bounds[group * kGroupTokens + i] = stays ? bound : kImpossible;
      const uint64_t key = TokenKey(stays ? bound : kImpossible, id);
      highest = key < highest ? key : highest;
    }
  }
  highest = BlockFold<kTileThreads>(
      highest, [](uint64_t a, uint64_t b) { return a < b ? a : b; }, scratch);
  if (ValueOfToken(highest) == kImpossible) return found;
  // Each thread scores it for itself, which is faster than to wait for one. The sum is rounded, as bounds are.
  constexpr float kRounding = 0x1p-12f;
  const int32_t id = IdOfToken(highest);
  found.least = fmaxf(found.least, gap_of(task.logits[id]) + NoiseOf(task, id) - kRounding);
  return found;
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
  const TileBounds found = BoundScores(task, cut, tile, largest.max, noise_of_largest);
  uint32_t contenders = 0;
#pragma unroll
  for (int entry = 0; entry < kTokensPerThread; ++entry) {
    contenders |= static_cast<uint32_t>(found.bounds[entry] >= found.least) << entry;
  }
  for (int entry = 0; contenders >> entry != 0; ++entry) {
    if ((contenders >> entry & 1) == 0) continue;
    // Few tokens come here. They are read again, so that the other tokens' logits can stay in registers.
    const int32_t id = FirstIdOfGroup(entry / kGroupTokens) + entry % kGroupTokens;
    const double score = ScoreOf(task, task.logits[id], NoiseOf(task, id));
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
