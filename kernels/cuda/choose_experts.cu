// SPDX-License-Identifier: Apache-2.0
// Two kernels. A block for each row weighs all experts and takes the best of the rest num_chosen times, in shared
// memory. Then one block counts the choices of each expert, gives it a range and tiles, and puts its rows there. The
// order within a range is that in which threads arrive. Bytes moved: a row's scores, three times by its block.
#include <algorithm>

#include "kernels/check.h"
#include "kernels/cuda/base/block_fold.cuh"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/base/ptx.cuh"
#include "kernels/cuda/choose_experts.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr int kRowThreads = 128;
constexpr int kSortThreads = 256;

// An expert, and the value by which a row prefers it. The index -1 means no expert. CUDA wants no initialisers in
// shared memory.
struct Candidate {
  float value;
  int32_t expert;
};

// The larger value, ties to the lower expert. Comparisons with a value that is no number are false.
struct Better {
  __device__ Candidate operator()(const Candidate& a, const Candidate& b) const {
    if (a.expert < 0) return b;
    if (b.expert < 0) return a;
    const Candidate& low = a.expert < b.expert ? a : b;
    const Candidate& high = a.expert < b.expert ? b : a;
    return high.value > low.value ? high : low;
  }
};

struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// A row's experts in shared memory.
struct RowExperts {
  float* weights;      // [N] before they are divided by a sum
  float* values;       // [N] by which the row prefers its experts
  int32_t* is_chosen;  // [N]
};

__device__ RowExperts RowExpertsOf(int64_t num_experts) {
  auto* weights = static_cast<float*>(ptx::DynamicSharedMemory());
  return {weights, weights + num_experts, reinterpret_cast<int32_t*>(weights + 2 * num_experts)};
}
size_t RowExpertBytes(int64_t num_experts) { return num_experts * (2 * sizeof(float) + sizeof(int32_t)); }

// Computes all weights and values, and marks no expert as chosen. Returns the sum of all weights.
__device__ float WeighExperts(const ExpertsArgs& args, const RowExperts& row, float* scratch) {
  const int64_t num_experts = args.scores.shape[1];
  const float* scores = args.scores.as<float>() + blockIdx.x * num_experts;
  const bool is_sigmoid =
      args.weighting == ExpertWeighting::kSigmoidOverChosen || args.weighting == ExpertWeighting::kSigmoid;
  float max = scores[0];
  for (int64_t i = threadIdx.x; i < num_experts; i += kRowThreads) max = fmaxf(max, scores[i]);
  max = BlockFold<kRowThreads>(max, Larger(), scratch);
  float sum = 0;
  for (int64_t i = threadIdx.x; i < num_experts; i += kRowThreads) {
    const float weight = is_sigmoid ? 1 / (1 + expf(-scores[i])) : expf(scores[i] - max);
    row.weights[i] = weight;
    row.values[i] = args.bias == nullptr ? scores[i] : weight + args.bias[i];
    row.is_chosen[i] = 0;
    sum += weight;
  }
  return BlockFold<kRowThreads>(sum, Plus(), scratch);
}

// Marks the chosen experts. Returns the sum of their weights.
__device__ float MarkChosen(const RowExperts& row, int64_t num_experts, int32_t num_chosen, Candidate* scratch) {
  float sum = 0;
  for (int32_t n = 0; n < num_chosen; ++n) {
    Candidate best{.value = 0, .expert = -1};
    for (auto i = static_cast<int32_t>(threadIdx.x); i < num_experts; i += kRowThreads) {
      if (row.is_chosen[i] == 0) best = Better()(best, {.value = row.values[i], .expert = i});
    }
    best = BlockFold<kRowThreads>(best, Better(), scratch);
    if (threadIdx.x == 0) row.is_chosen[best.expert] = 1;
    __syncthreads();
    sum += row.weights[best.expert];
  }
  return sum;
}

// A score that is no number makes every weight of the row one, so that it shows.
__global__ void ChooseForRow(ExpertsArgs args, ExpertChoices choices) {
  __shared__ float sums[kRowThreads];
  __shared__ Candidate candidates[kRowThreads];
  const int64_t num_experts = args.scores.shape[1];
  const RowExperts row = RowExpertsOf(num_experts);
  const float sum_of_all = WeighExperts(args, row, sums);
  const float sum_of_chosen = MarkChosen(row, num_experts, args.num_chosen, candidates);
  float divisor = 1;
  if (args.weighting == ExpertWeighting::kSoftmaxOverAll || sum_of_all != sum_of_all) {
    divisor = sum_of_all;
  } else if (args.weighting != ExpertWeighting::kSigmoid) {
    divisor = sum_of_chosen;
  }
  for (int64_t i = threadIdx.x; i < num_experts; i += kRowThreads) {
    if (row.is_chosen[i] == 0) continue;
    int32_t num_before = 0;
    for (int64_t j = 0; j < i; ++j) num_before += row.is_chosen[j];
    const int64_t choice = int64_t{blockIdx.x} * args.num_chosen + num_before;
    choices.experts[choice] = static_cast<int32_t>(i);
    choices.weights[choice] = row.weights[i] * args.scale / divisor;
  }
}

// The choices and the tiles of some experts, in shared memory.
struct Counts {
  uint32_t num_choices;
  uint32_t num_tiles;
};

// A thread has the experts from threadIdx.x * experts_per_thread on. counts[i] becomes the place of expert i's first
// choice.
__global__ void SortChoices(ExpertChoices choices, ExpertTiles tiles, int32_t num_experts, int32_t num_chosen,
                            int32_t num_choices) {
  __shared__ Counts of_threads[kSortThreads];
  auto* counts = static_cast<uint32_t*>(ptx::DynamicSharedMemory());  // [N]
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = thread; i < num_experts; i += kSortThreads) counts[i] = 0;
  __syncthreads();
  for (int32_t i = thread; i < num_choices; i += kSortThreads) atomicAdd(counts + choices.experts[i], 1u);
  __syncthreads();

  const int32_t experts_per_thread = (num_experts + kSortThreads - 1) / kSortThreads;
  const int32_t begin = thread * experts_per_thread;
  const int32_t end = begin + experts_per_thread < num_experts ? begin + experts_per_thread : num_experts;
  const auto tiles_of = [&](uint32_t count) { return (count + tiles.max_rows - 1) / tiles.max_rows; };
  Counts own{};
  for (int32_t i = begin; i < end; ++i) {
    own.num_choices += counts[i];
    own.num_tiles += tiles_of(counts[i]);
  }
  of_threads[thread] = own;
  __syncthreads();
  Counts before{}, all{};
  for (int32_t i = 0; i < kSortThreads; ++i) {
    if (i == thread) before = all;
    all.num_choices += of_threads[i].num_choices;
    all.num_tiles += of_threads[i].num_tiles;
  }
  for (int32_t i = begin; i < end; ++i) {
    const uint32_t count = counts[i];
    counts[i] = before.num_choices;
    for (uint32_t first = 0; first < count; first += tiles.max_rows) {
      const uint32_t left = count - first;
      const auto max_rows = static_cast<uint32_t>(tiles.max_rows);
      choices.tiles[before.num_tiles++] = {i, static_cast<int32_t>(before.num_choices + first),
                                           static_cast<int32_t>(left < max_rows ? left : max_rows)};
    }
    before.num_choices += count;
  }
  for (auto i = static_cast<int32_t>(all.num_tiles) + thread; i < tiles.max_tiles; i += kSortThreads) {
    choices.tiles[i] = {};
  }
  __syncthreads();
  for (int32_t i = thread; i < num_choices; i += kSortThreads) {
    const auto place = static_cast<int32_t>(atomicAdd(counts + choices.experts[i], 1u));
    choices.places[i] = place;
    choices.rows[place] = i / num_chosen;
  }
}

}  // namespace

// Tiles as tall as the experts' rows are many on the average: more rows would mostly be padding, and fewer would read
// matrices again.
ExpertTiles PlanExpertTiles(int64_t num_rows, int64_t num_chosen, int64_t num_experts) {
  const int64_t num_choices = num_rows * num_chosen;
  int32_t max_rows = 8;
  while (max_rows < 64 && max_rows * num_experts < num_choices) max_rows *= 2;
  // Every expert that is chosen has at most one tile that is not full.
  const int64_t num_used = std::min(num_experts, num_choices);
  return {max_rows, static_cast<int32_t>(num_used + (num_choices - num_used) / max_rows)};
}

void ChooseExperts(const ExpertsArgs& args, const ExpertTiles& tiles, const ExpertChoices& choices,
                   cudaStream_t stream) {
  const int64_t num_rows = args.scores.shape[0], num_experts = args.scores.shape[1];
  FT_CUDA_CHECK(Launch(ChooseForRow,
                       {.grid = dim3(static_cast<unsigned>(num_rows)),
                        .block = dim3(kRowThreads),
                        .shared_bytes = RowExpertBytes(num_experts),
                        .stream = stream},
                       args, choices));
  FT_CUDA_CHECK(Launch(
      SortChoices,
      {.grid = dim3(1), .block = dim3(kSortThreads), .shared_bytes = num_experts * sizeof(uint32_t), .stream = stream},
      choices, tiles, static_cast<int32_t>(num_experts), args.num_chosen,
      static_cast<int32_t>(num_rows * args.num_chosen)));
}

}  // namespace foretoken::kernels::cuda
