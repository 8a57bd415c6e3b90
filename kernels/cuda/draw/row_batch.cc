// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/draw/row_batch.h"

#include <cmath>
#include <utility>

#include "kernels/check.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr size_t kMostRows = 65535;  // the limit of a grid's second dimension

size_t NumTiles(int32_t num_tokens) { return (static_cast<size_t>(num_tokens) + kTileTokens - 1) / kTileTokens; }

}  // namespace

RowTask TaskOf(const SamplingParams& sampling, int32_t num_tokens) {
  if (sampling.is_greedy()) return {.is_greedy = true};
  RowTask task{.inverse_temperature = 1.0f / sampling.temperature,
               .top_p = sampling.top_p,
               .seed = sampling.seed,
               .sample_index = sampling.sample_index};
  if (sampling.top_k < num_tokens) task.top_k = sampling.top_k;
  if (sampling.min_p > 0) task.min_p_reach = std::log(double{sampling.min_p}) * sampling.temperature;
  return task;
}

RowBatch::RowBatch(std::vector<RowTask> tasks, int32_t num_tokens, StagedUpload& upload, cudaStream_t stream)
    : tasks_(std::move(tasks)),
      stream_(stream),
      scans_(tasks_.size() * NumTiles(num_tokens) * sizeof(TileScan), stream),
      states_(tasks_.size() * sizeof(RowState), stream),
      tile_weights_(tasks_.size() * NumTiles(num_tokens) * sizeof(FixedWeight), stream) {
  FT_CHECK(num_tokens <= kMaxDrawTokens && tasks_.size() <= kMostRows);
  work_ = {.scans = static_cast<TileScan*>(scans_.data()),
           .states = static_cast<RowState*>(states_.data()),
           .tile_weights = static_cast<FixedWeight*>(tile_weights_.data()),
           .num_rows = static_cast<int32_t>(tasks_.size()),
           .num_tiles = static_cast<int32_t>(NumTiles(num_tokens)),
           .num_tokens = num_tokens};
  upload.Add(std::span<const RowTask>(tasks_), &work_.tasks);
}

}  // namespace foretoken::kernels::cuda
