// SPDX-License-Identifier: Apache-2.0
// The two distributions of kernels/target_residual.h on a GPU: the rest of target_prob and the rest of draft_prob while
// the children of a node are tested. A block follows the test together: every thread calls every function and gets the
// same result, and the threads share loops over tokens.
//
// The target's weights are integers (fixed_weight.cuh), so a rejection can subtract the same amount from a token and
// from its tile's sum. The mass is always the sum of the tiles' sums, and a draw first finds the tile and then the
// token. Only tokens that the test may change have stored weights; the other weights are computed from their logits
// again.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "kernels/cuda/base/block_fold.cuh"
#include "kernels/cuda/draw/fixed_weight.cuh"
#include "kernels/cuda/draw/row_batch.h"
#include "kernels/cuda/draw/token_at.cuh"
#include "kernels/host_device.h"

namespace foretoken::kernels::cuda {

// As DrawnChildren, with memory for the rest of the probabilities.
struct DrawnAtNode {
  int32_t parent;
  std::span<const int32_t> children;
  std::span<const int32_t> draft_token_ids;
  const float* draft_probs;
  double* left;
};

// Q: see DrawnDistribution.
class BlockDraft {
 public:
  __device__ explicit BlockDraft(const DrawnAtNode& drawn) : token_ids_(drawn.draft_token_ids), left_(drawn.left) {
    for (size_t i = threadIdx.x; i < token_ids_.size(); i += kTileThreads) left_[i] = drawn.draft_probs[i];
    __syncthreads();
    AddUp();
  }

  __device__ bool is_point() const { return token_ids_.empty(); }
  __device__ std::span<const int32_t> token_ids() const { return token_ids_; }
  __device__ double left(size_t i) const { return left_[i]; }  // unnormalised
  __device__ double mass() const { return mass_; }

  __device__ double Prob(int32_t token_id) const {
    if (is_point()) return 1;
    __shared__ double prob;
    if (threadIdx.x == 0) prob = 0;
    __syncthreads();
    for (size_t i = threadIdx.x; i < token_ids_.size(); i += kTileThreads) {
      if (token_ids_[i] == token_id) prob = left_[i] / mass_;
    }
    __syncthreads();
    const double result = prob;
    __syncthreads();
    return result;
  }

  // Q <- norm(Q with this token's probability set to 0).
  __device__ void Remove(int32_t token_id) {
    for (size_t i = threadIdx.x; i < token_ids_.size(); i += kTileThreads) {
      if (token_ids_[i] == token_id) left_[i] = 0;
    }
    __syncthreads();
    AddUp();
  }

 private:
  __device__ void AddUp() {
    __shared__ double scratch[kTileThreads];
    double sum = 0;
    for (size_t i = threadIdx.x; i < token_ids_.size(); i += kTileThreads) sum += left_[i];
    mass_ = BlockFold<kTileThreads>(sum, Plus(), scratch);
  }

  std::span<const int32_t> token_ids_;
  double* left_;
  double mass_ = 0;
};

// P: see TargetResidual.
class BlockResidual {
 public:
  // The row is drawable and weighed. `test_ids` holds every tested token and every token of a draft, ascending; `left`
  // is memory for as many weights.
  __device__ BlockResidual(const RowWork& work, int32_t row, std::span<const int32_t> test_ids, FixedWeight* left)
      : task_(work.tasks[row]),
        state_(work.states[row]),
        test_ids_(test_ids),
        left_(left),
        tile_weights_(work.tile_weights + int64_t{row} * work.num_tiles),
        num_tiles_(work.num_tiles),
        num_tokens_(work.num_tokens) {
    for (size_t i = threadIdx.x; i < test_ids_.size(); i += kTileThreads) left_[i] = WeightOfRow(test_ids_[i]);
    __syncthreads();
    AddUp();
  }

  __device__ bool is_empty() const { return mass_ == 0; }
  __device__ double Prob(int32_t token_id) const {
    const auto left = static_cast<double>(left_[PlaceOfId(token_id)]);
    __syncthreads();  // no thread may go on to change the weight before all have read it
    return left / static_cast<double>(mass_);
  }

  // P <- norm((P - Q)+).
  __device__ void Subtract(const BlockDraft& draft) {
    const double unit = static_cast<double>(mass_) / draft.mass();
    for (size_t i = threadIdx.x; i < draft.token_ids().size(); i += kTileThreads) {
      const double at_most = draft.left(i) * unit + 0.5;
      FixedWeight& left = left_[PlaceOfId(draft.token_ids()[i])];
      Take(draft.token_ids()[i], at_most < static_cast<double>(left) ? static_cast<FixedWeight>(at_most) : left, left);
    }
    __syncthreads();
    AddUp();
  }

  // P <- norm(P with this token's probability set to 0).
  __device__ void Remove(int32_t token_id) {
    FixedWeight& left = left_[PlaceOfId(token_id)];
    if (threadIdx.x == 0) Take(token_id, left, left);
    __syncthreads();
    AddUp();
  }

  // Returns the token where `u` times the mass falls, by ascending id. u is in [0, 1), and the mass is not empty.
  __device__ int32_t Draw(double u) const {
    __shared__ FixedWeight sums[kTileThreads];
    auto rest = static_cast<FixedWeight>(u * static_cast<double>(mass_));
    if (rest >= mass_) rest = mass_ - 1;
    int32_t tile = 0;
    for (int32_t first = 0; first < num_tiles_; first += kTileThreads) {  // a group of tiles at a time, until the right
                                                                          // one is found
      const int32_t count = num_tiles_ - first < kTileThreads ? num_tiles_ - first : kTileThreads;
      const auto i = static_cast<int32_t>(threadIdx.x);
      sums[i] = i < count ? tile_weights_[first + i] : 0;
      __syncthreads();
      const int place = PlaceOf(sums, count, rest);
      const FixedWeight last = sums[place];
      __syncthreads();
      tile = first + place;
      if (rest < last) break;
      rest -= last;
    }
    return TokenAt(tile * kTileTokens, num_tokens_, rest, [&](int32_t id) {
      const size_t place = PlaceOfId(id);
      return place < test_ids_.size() && test_ids_[place] == id ? left_[place] : WeightOfRow(id);
    });
  }

 private:
  __device__ FixedWeight WeightOfRow(int32_t id) const {
    const float x = task_.logits[id];
    return state_.cut.Keeps(x, id) ? WeightOf(x, state_.max, task_.inverse_temperature) : 0;
  }

  // The first place whose id is not below the given one.
  __device__ size_t PlaceOfId(int32_t token_id) const {
    size_t begin = 0, end = test_ids_.size();
    while (begin < end) {
      const size_t middle = (begin + end) / 2;
      if (test_ids_[middle] < token_id) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }

  __device__ void Take(int32_t token_id, FixedWeight taken, FixedWeight& left) {
    left -= taken;
    atomicAdd(&tile_weights_[token_id / kTileTokens], ~taken + 1);  // modulo 2^64: subtracts `taken`
  }

  __device__ void AddUp() {
    __shared__ FixedWeight scratch[kTileThreads];
    FixedWeight sum = 0;
    for (auto tile = static_cast<int32_t>(threadIdx.x); tile < num_tiles_; tile += kTileThreads) {
      sum += tile_weights_[tile];
    }
    mass_ = BlockFold<kTileThreads>(sum, Plus(), scratch);
  }

  const RowTask& task_;
  const RowState state_;
  std::span<const int32_t> test_ids_;
  FixedWeight* left_;
  FixedWeight* tile_weights_;
  int32_t num_tiles_;
  int32_t num_tokens_;
  FixedWeight mass_ = 0;
};

}  // namespace foretoken::kernels::cuda
