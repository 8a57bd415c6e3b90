// SPDX-License-Identifier: Apache-2.0
// A pass is one kernel, with a block per (tile, row). A block counts in shared bins and adds these to the row's bins.
// Each block of the next pass reads the row's bins and finds the bin of the end by itself, which costs less than a
// kernel between.
// Bytes moved: the logits once per pass, with 5 passes for top_k and 5 for top_p. A batch's rows mostly come from the
// second-level cache. After the passes a block per row finds the end among equal values.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/base/block_fold.cuh"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/draw/filter_cut.h"
#include "kernels/cuda/draw/fixed_weight.cuh"
#include "kernels/cuda/draw/row_tile.cuh"
#include "kernels/cuda/draw/token_at.cuh"
#include "kernels/cuda/draw/value_bins.cuh"

namespace foretoken::kernels::cuda {
namespace {

enum class SearchKind { kTopK, kTopP };

// The state of a row's search before a pass. The end is the last token inside with less than `target` before it.
struct SearchState {
  BinPath path;
  FixedWeight target;  // known once the first pass has added everything
  FixedWeight above;   // the measure before all tokens inside
  FixedWeight inside;  // the measure of the tokens inside, from the second pass on
};

struct CutSearch {
  SearchKind kind;
  SearchState* states;  // [passes, rows]
  FixedWeight* bins;    // [passes, rows, kNumBins]

  __device__ bool Concerns(const RowTask& task) const {
    return kind == SearchKind::kTopK ? task.top_k > 0 : task.top_p < 1;
  }
  __device__ FixedWeight MeasureOf(const RowTask& task, const RowState& state, float x) const {
    return kind == SearchKind::kTopK ? 1 : WeightOf(x, state.max, task.inverse_temperature);
  }
};

// At least 1, so that the first token is kept whatever the share.
__device__ FixedWeight TargetOf(const CutSearch& search, const RowTask& task, FixedWeight total) {
  if (search.kind == SearchKind::kTopK) {
    const auto top_k = static_cast<FixedWeight>(task.top_k);
    return top_k < total ? top_k : total;
  }
  const auto share = static_cast<FixedWeight>(ceil(double{task.top_p} * static_cast<double>(total)));
  return share < 1 ? 1 : share < total ? share : total;
}

// Returns the state after `pass`, from the state before it and the bins that it filled. Every thread of a block calls
// it.
__device__ SearchState Narrow(const CutSearch& search, const RowWork& work, int32_t row, int pass) {
  constexpr int kNumGroups = 16, kGroupBins = kNumBins / kNumGroups;
  __shared__ FixedWeight bins[kNumBins];
  __shared__ FixedWeight groups[kNumGroups];
  __shared__ SearchState narrowed;
  const int64_t place = int64_t{pass} * work.num_rows + row;
  for (int i = static_cast<int>(threadIdx.x); i < kNumBins; i += kTileThreads)
    bins[i] = search.bins[place * kNumBins + i];
  __syncthreads();
  if (threadIdx.x < kNumGroups) {
    FixedWeight sum = 0;
    for (int i = 0; i < kGroupBins; ++i) sum += bins[threadIdx.x * kGroupBins + i];
    groups[threadIdx.x] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    SearchState state = search.states[place];
    if (pass == 0) {
      FixedWeight total = 0;
      for (const FixedWeight sum : groups) total += sum;
      state.target = TargetOf(search, work.tasks[row], total);
    }
    const FixedWeight needed = state.target - state.above - 1;  // the end is in the bin where the sum exceeds this
    FixedWeight rest = needed;
    const int group = PlaceOf(groups, kNumGroups, rest);
    const int bin = group * kGroupBins + PlaceOf(bins + group * kGroupBins, kGroupBins, rest);
    state.above += needed - rest;
    state.inside = bins[bin];
    state.path = Into(state.path, pass, bin);
    narrowed = state;
  }
  __syncthreads();
  return narrowed;
}

__global__ void __launch_bounds__(kTileThreads) DealTile(RowWork work, CutSearch search, int pass) {
  __shared__ FixedWeight bins[kNumBins];
  const auto row = static_cast<int32_t>(blockIdx.y), thread = static_cast<int32_t>(threadIdx.x);
  const RowTask& task = work.tasks[row];
  if (!search.Concerns(task) || !IsDrawable(work, row)) return;
  const RowState state = work.states[row];
  const SearchState now = pass == 0 ? SearchState{} : Narrow(search, work, row, pass - 1);
  const int64_t place = int64_t{pass} * work.num_rows + row;
  if (blockIdx.x == 0 && thread == 0) search.states[place] = now;
  for (int i = thread; i < kNumBins; i += kTileThreads) bins[i] = 0;
  __syncthreads();
  ForEachToken(LoadTile(task.logits, work.num_tokens), [&](float x, int32_t id) {
    if (x == kImpossible || !state.cut.Keeps(x, id) || !IsInside(now.path, pass, x, state.max)) return;
    const FixedWeight measure = search.MeasureOf(task, state, x);
    if (measure > 0) atomicAdd(&bins[BinOf(pass, x, state.max)], measure);
  });
  __syncthreads();
  for (int i = thread; i < kNumBins; i += kTileThreads) {
    if (bins[i] > 0) atomicAdd(&search.bins[place * kNumBins + i], bins[i]);
  }
}

// The id of the token that has exactly `num_before` tokens of the same value before it.
__device__ int32_t FindTie(const RowWork& work, const RowTask& task, float value, FixedWeight num_before) {
  __shared__ FixedWeight scratch[kTileThreads];
  const auto is_tie = [&](int32_t id) -> FixedWeight { return task.logits[id] == value ? 1 : 0; };
  for (int32_t first_id = 0;; first_id += kTileTokens) {
    const int32_t end = first_id + kTileTokens < work.num_tokens ? first_id + kTileTokens : work.num_tokens;
    FixedWeight count = 0;
    for (int32_t id = first_id + static_cast<int32_t>(threadIdx.x); id < end; id += kTileThreads) count += is_tie(id);
    count = BlockFold<kTileThreads>(count, Plus(), scratch);
    if (num_before < count || end == work.num_tokens) return TokenAt(first_id, work.num_tokens, num_before, is_tie);
    num_before -= count;
  }
}

// One block per row. All tokens inside now have one value; all of them are kept, or the first by id.
__global__ void __launch_bounds__(kTileThreads) FinishSearch(RowWork work, CutSearch search) {
  const auto row = static_cast<int32_t>(blockIdx.x);
  const RowTask& task = work.tasks[row];
  if (!search.Concerns(task) || !IsDrawable(work, row)) return;
  const RowState state = work.states[row];
  const SearchState end = Narrow(search, work, row, kNumSearchPasses - 1);
  const float value = ValueOfKey(end.path.prefix);
  const FixedWeight measure = search.MeasureOf(task, state, value);
  const FixedWeight num_kept = (end.target - end.above + measure - 1) / measure;
  FilterCut cut{.value = value};
  if (num_kept * measure < end.inside) {
    cut.id = FindTie(work, task, value, num_kept - 1);
  } else if (value == state.cut.value) {
    cut.id = state.cut.id;
  }
  if (threadIdx.x == 0) work.states[row].cut = cut;
}

// One thread per row. The bound is the least f32 that min_p keeps.
__global__ void ApplyMinP(RowWork work) {
  const auto row = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= work.num_rows || !work.tasks[row].has_min_p() || !IsDrawable(work, row)) return;
  RowState& state = work.states[row];
  const double bound = state.max + work.tasks[row].min_p_reach;
  float least = std::numeric_limits<float>::lowest();
  if (bound > least) {
    least = static_cast<float>(bound);
    if (least < bound) least = nextafterf(least, std::numeric_limits<float>::infinity());
  }
  if (least > state.cut.value) state.cut = {.value = least};
}

void Search(const RowBatch& batch, SearchKind kind) {
  const RowWork& work = batch.work();
  const size_t num_places = size_t{kNumSearchPasses} * work.num_rows,
               bins_bytes = num_places * kNumBins * sizeof(FixedWeight);
  const StreamScratch states(num_places * sizeof(SearchState), batch.stream()), bins(bins_bytes, batch.stream());
  FT_CUDA_CHECK(cudaMemsetAsync(bins.data(), 0, bins_bytes, batch.stream()));
  const CutSearch search{
      .kind = kind, .states = static_cast<SearchState*>(states.data()), .bins = static_cast<FixedWeight*>(bins.data())};
  const LaunchShape tiles{.grid = work.tile_grid(), .block = dim3(kTileThreads), .stream = batch.stream()};
  for (int pass = 0; pass < kNumSearchPasses; ++pass) FT_CUDA_CHECK(Launch(DealTile, tiles, work, search, pass));
  const LaunchShape rows{.grid = work.row_grid(), .block = dim3(kTileThreads), .stream = batch.stream()};
  FT_CUDA_CHECK(Launch(FinishSearch, rows, work, search));
}

}  // namespace

void FindCuts(const RowBatch& batch) {
  const auto any = [&](const auto& predicate) { return std::ranges::any_of(batch.tasks(), predicate); };
  if (any([](const RowTask& task) { return task.top_k > 0; })) Search(batch, SearchKind::kTopK);
  if (any([](const RowTask& task) { return task.top_p < 1; })) Search(batch, SearchKind::kTopP);
  if (!any([](const RowTask& task) { return task.has_min_p(); })) return;
  constexpr unsigned kThreads = 128;
  const unsigned num_blocks = (static_cast<unsigned>(batch.work().num_rows) + kThreads - 1) / kThreads;
  const LaunchShape shape{.grid = dim3(num_blocks), .block = dim3(kThreads), .stream = batch.stream()};
  FT_CUDA_CHECK(Launch(ApplyMinP, shape, batch.work()));
}

}  // namespace foretoken::kernels::cuda
