// SPDX-License-Identifier: Apache-2.0
// After the search for the cut, a block per (tile, row) appends the tokens that the cut keeps to the row's list, in any
// order.
// Bytes moved: the logits once more.
#include <algorithm>

#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/draw/filter_cut.h"
#include "kernels/cuda/draw/row_tile.cuh"
#include "kernels/cuda/draw/top_tokens.h"

namespace foretoken::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kTileThreads)
    CollectTile(RowWork work, OrderedToken* tokens, unsigned* counts, unsigned capacity) {
  const auto row = static_cast<int32_t>(blockIdx.y);
  if (work.tasks[row].top_k == 0 || !IsDrawable(work, row)) return;
  const FilterCut cut = work.states[row].cut;
  ForEachToken(LoadTile(work.tasks[row].logits, work.num_tokens), [&](float x, int32_t id) {
    if (x == kImpossible || !cut.Keeps(x, id)) return;
    tokens[size_t{capacity} * row + atomicAdd(&counts[row], 1u)] = {x, id};
  });
}

}  // namespace

TopTokens::TopTokens(const RowBatch& batch, Device& device) {
  for (const RowTask& task : batch.tasks()) capacity_ = std::max(capacity_, static_cast<size_t>(task.top_k));
  FindCuts(batch);
  const size_t num_rows = batch.tasks().size();
  const size_t tokens_bytes = num_rows * capacity_ * sizeof(OrderedToken), counts_bytes = num_rows * sizeof(unsigned);
  if (tokens_bytes == 0) return;
  const StreamScratch tokens(tokens_bytes, batch.stream()), counts(counts_bytes, batch.stream());
  FT_CUDA_CHECK(cudaMemsetAsync(counts.data(), 0, counts_bytes, batch.stream()));
  const LaunchShape shape{.grid = batch.work().tile_grid(), .block = dim3(kTileThreads), .stream = batch.stream()};
  FT_CUDA_CHECK(Launch(CollectTile, shape, batch.work(), static_cast<OrderedToken*>(tokens.data()),
                       static_cast<unsigned*>(counts.data()), static_cast<unsigned>(capacity_)));
  tokens_ = static_cast<const OrderedToken*>(device.Download(tokens.data(), tokens_bytes));
  counts_ = static_cast<const unsigned*>(device.Download(counts.data(), counts_bytes));
}

std::vector<OrderedToken> TopTokens::OfRow(size_t row) const {
  if (counts_ == nullptr) return {};
  const OrderedToken* first = tokens_ + row * capacity_;
  std::vector<OrderedToken> tokens(first, first + counts_[row]);
  std::sort(tokens.begin(), tokens.end(), [](const OrderedToken& a, const OrderedToken& b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
  });
  return tokens;
}

}  // namespace foretoken::kernels::cuda
