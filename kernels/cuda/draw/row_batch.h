// SPDX-License-Identifier: Apache-2.0
// Rows of logits that an op reads in several passes, and the results that the passes leave for each other on the
// device.
//
// A row is cut by vocabulary position into tiles of kTileTokens, one block each, so that also few rows fill a GPU.
// Results of tiles are merged in the tiles' order, or they are sums of integers, for which order does not matter
// (fixed_weight.cuh). So every result for a row depends on that row alone (E1). The passes:
//
//   adjust_rows   bias, penalties and mask, for rows that have any
//   scan_rows     the largest logit and, where no cut is in the way, the draw: one pass over the logits
//   filter_cut    finds where top_k, top_p and min_p cut
//   weigh_rows    the weight of the tokens that the cut keeps, by tile
//   top_tokens    the tokens that the cut keeps, where they are few
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "kernels/cuda/base/staged_upload.h"
#include "kernels/cuda/base/stream_scratch.h"
#include "kernels/filter_cut.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

inline constexpr int kWarpThreads = 32;
inline constexpr int kTileThreads = 128;
inline constexpr int kTileTokens = 2048;
inline constexpr float kImpossible = -std::numeric_limits<float>::infinity();

// A sum of weights, in units of 2^-44 of the largest weight of the row: see fixed_weight.cuh.
using FixedWeight = unsigned long long;             // NOLINT(google-runtime-int): what atomics take
inline constexpr int32_t kMaxDrawTokens = 1 << 19;  // a sum has room for the weights of so many tokens

// A pass's task for one row.
struct RowTask {
  const float* logits = nullptr;       // [V] on the device, adjusted
  const int32_t* is_wanted = nullptr;  // on the device, from an earlier kernel: 0 leaves the row out; null: wanted
  bool has_noise = false;              // scores are scaled logits plus the keyed noise; otherwise plain logits
  bool is_greedy = false;              // the cut keeps the largest logit alone
  float inverse_temperature = 1;
  int32_t top_k = 0;                 // 0: off
  float top_p = 1;                   // 1: off
  double min_p_reach = kImpossible;  // log(min_p) * temperature, how far below the largest logit; -inf: off
  uint64_t seed = 0;
  uint32_t sample_index = 0;
  uint32_t t = 0;

  FT_HOST_DEVICE bool has_min_p() const { return min_p_reach > kImpossible; }
  FT_HOST_DEVICE bool has_cut() const { return top_k > 0 || top_p < 1 || has_min_p(); }
};

// The task for a request's distribution: its temperature and filters. Without noise, at t = 0.
RowTask TaskOf(const SamplingParams& sampling, int32_t num_tokens);

// A pass's result for a tile. As all types in shared memory it has no initial values.
struct TileScan {
  double score;    // the best score; -inf where nothing is kept
  float max;       // the largest logit
  int32_t id;      // the lowest id with that score
  bool is_finite;  // false: the tile has a NaN or +inf
};

// The facts about a row so far.
struct RowState {
  DrawStatus status = DrawStatus::kOk;
  float max = 0;
  FilterCut cut;
};

// The batch in the form that kernels take.
struct RowWork {
  const RowTask* tasks = nullptr;       // [rows]
  TileScan* scans = nullptr;            // [rows, tiles]
  RowState* states = nullptr;           // [rows]
  FixedWeight* tile_weights = nullptr;  // [rows, tiles]
  int32_t num_rows = 0;
  int32_t num_tiles = 0;
  int32_t num_tokens = 0;

  // One block of kTileThreads per tile; y is the row.
  dim3 tile_grid() const { return dim3(static_cast<unsigned>(num_tiles), static_cast<unsigned>(num_rows)); }
  dim3 row_grid() const { return dim3(static_cast<unsigned>(num_rows)); }
};

class RowBatch {
 public:
  // The tasks go with `upload`, which the caller sends.
  RowBatch(std::vector<RowTask> tasks, int32_t num_tokens, StagedUpload& upload, cudaStream_t stream);
  RowBatch(const RowBatch&) = delete;
  RowBatch& operator=(const RowBatch&) = delete;

  const RowWork& work() const { return work_; }
  cudaStream_t stream() const { return stream_; }
  std::span<const RowTask> tasks() const { return tasks_; }

 private:
  std::vector<RowTask> tasks_;
  cudaStream_t stream_;
  StreamScratch scans_;
  StreamScratch states_;
  StreamScratch tile_weights_;
  RowWork work_;
};

}  // namespace foretoken::kernels::cuda
