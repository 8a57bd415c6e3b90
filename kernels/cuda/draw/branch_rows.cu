// SPDX-License-Identifier: Apache-2.0
// A row with a mask is copied, and the ids outside of the mask become impossible. The distribution of each row is found
// as for a draw. Then a block per (tile, row) writes the values by which the
// row's tokens are ordered (their scores, or plain logits) as another row of logits. The top tokens of that row are the
// children.
// Bytes moved: the logits in for the largest, for the cuts and for the weights; the values out once and in six times to
// find the top.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/draw/adjust_rows.h"
#include "kernels/cuda/draw/branch_rows.h"
#include "kernels/cuda/draw/filter_cut.h"
#include "kernels/cuda/draw/row_tile.cuh"
#include "kernels/cuda/draw/scan_rows.h"
#include "kernels/cuda/draw/token_noise.cuh"
#include "kernels/cuda/draw/top_tokens.h"
#include "kernels/cuda/draw/weigh_rows.h"

namespace foretoken::kernels::cuda {
namespace {

// Writes [rows, V] values to order by; -inf for tokens that are cut, and for all tokens of a row from which nothing can
// be drawn.
__global__ void __launch_bounds__(kTileThreads) WriteOrderTile(RowWork work, float* order_values) {
  const auto row = static_cast<int32_t>(blockIdx.y);
  const RowTask& task = work.tasks[row];
  const RowState state = work.states[row];
  const RowTile tile = LoadTile(task.logits, work.num_tokens);
  float* to = order_values + int64_t{row} * work.num_tokens;
#pragma unroll
  for (int group = 0; group < kGroupsPerThread; ++group) {
    const int32_t first_id = FirstIdOfGroup(group);
    PhiloxBlock words{};
    if (task.has_noise) words = NoiseWords(task, first_id);
#pragma unroll
    for (int i = 0; i < kGroupTokens; ++i) {
      const float x = tile.groups[group].values[i];
      if (first_id + i >= work.num_tokens) break;
      float value = kImpossible;
      if (state.status == DrawStatus::kOk && x != kImpossible && state.cut.Keeps(x, first_id + i)) {
        value = task.has_noise ? (x - state.max) * task.inverse_temperature + GumbelOf(words[i]) : x;
      }
      to[first_id + i] = value;
    }
  }
}

// Copies of the rows that have masks, with -inf at the ids that the masks leave out.
class MaskedRows {
 public:
  MaskedRows(const BranchRowsArgs& args, StagedUpload& upload, cudaStream_t stream) {
    for (const RowToBranch& row : args.rows) {
      if (row.mask != nullptr) copies_.push_back({.from = GivenRow(args, row)});
    }
    if (copies_.empty()) return;
    // Each row begins at a multiple of four entries, so that groups of logits can be loaded whole.
    const size_t width = (static_cast<size_t>(args.num_tokens) + 3) / 4 * 4;
    const size_t num_words = (static_cast<size_t>(args.num_tokens) + 31) / 32;
    memory_.emplace(copies_.size() * width * sizeof(float), stream);
    size_t copy_idx = 0;
    for (const RowToBranch& row : args.rows) {
      if (row.mask == nullptr) continue;
      RowAdjustment& copy = copies_[copy_idx];
      copy.to = static_cast<float*>(memory_->data()) + copy_idx++ * width;
      upload.Add(std::span(row.mask, num_words), &copy.mask);  // before the copies, which hold the mask's place
    }
    args_.num_rows = static_cast<int32_t>(copies_.size());
    args_.num_tokens = args.num_tokens;
    upload.Add(std::span<const RowAdjustment>(copies_), &args_.rows);
  }

  static const float* GivenRow(const BranchRowsArgs& args, const RowToBranch& row) {
    return args.logits.as<float>() + row.logit_row * args.logits.shape[1];
  }
  // The rows in the order of args.rows: a copy where there is a mask.
  std::vector<const float*> Rows(const BranchRowsArgs& args) const {
    std::vector<const float*> rows;
    size_t copy_idx = 0;
    for (const RowToBranch& row : args.rows) {
      rows.push_back(row.mask == nullptr ? GivenRow(args, row) : copies_[copy_idx++].to);
    }
    return rows;
  }
  // Computes the copies, once the upload is sent.
  void Enqueue(cudaStream_t stream) const {
    if (!copies_.empty()) AdjustRows(args_, stream);
  }

 private:
  std::vector<RowAdjustment> copies_;
  std::optional<StreamScratch> memory_;
  AdjustRowsArgs args_;
};

// Below the greedy temperature the distribution is that of temperature 1.
RowTask DistributionOf(const BranchRowsArgs& args, const RowToBranch& row) {
  FT_CHECK(row.logit_row >= 0 && row.logit_row < args.logits.shape[0] && row.num_children > 0);
  const bool is_greedy = row.sampling.is_greedy();
  RowTask task = TaskOf(is_greedy ? SamplingParams() : row.sampling, args.num_tokens);
  task.has_noise = !is_greedy && row.order == BranchOrder::kKeyedDraw;
  task.t = row.t;
  return task;
}

std::vector<RowTask> DistributionsOf(const BranchRowsArgs& args, const MaskedRows& masked) {
  std::vector<RowTask> distributions;
  for (const RowToBranch& row : args.rows) distributions.push_back(DistributionOf(args, row));
  const std::vector<const float*> logits = masked.Rows(args);
  for (size_t i = 0; i < logits.size(); ++i) distributions[i].logits = logits[i];
  return distributions;
}

// The searches for the top values of the same rows.
std::vector<RowTask> SearchesOf(const BranchRowsArgs& args, const float* order_values) {
  std::vector<RowTask> searches;
  for (size_t i = 0; i < args.rows.size(); ++i) {
    searches.push_back(
        {.logits = order_values + i * args.num_tokens, .top_k = std::min(args.rows[i].num_children, args.num_tokens)});
  }
  return searches;
}

RowChildren ChildrenOf(const RowTask& distribution, const RowTotal& total, const std::vector<OrderedToken>& top) {
  RowChildren children{.status = total.status, .children = {}};
  const auto log_weight = static_cast<float>(total.log_weight());
  for (const OrderedToken& token : top) {
    const float score =
        distribution.has_noise ? token.value : (token.value - total.max) * distribution.inverse_temperature;
    children.children.push_back({token.id, score - log_weight});
  }
  return children;
}

void BranchSome(const BranchRowsArgs& args, Device& device) {
  const cudaStream_t stream = device.stream();
  const StreamScratch order_values(args.rows.size() * args.num_tokens * sizeof(float), stream);
  auto* const order_rows = static_cast<float*>(order_values.data());
  StagedUpload upload;
  const MaskedRows masked(args, upload, stream);
  const RowBatch distributions(DistributionsOf(args, masked), args.num_tokens, upload, stream);
  const RowBatch searches(SearchesOf(args, order_rows), args.num_tokens, upload, stream);
  upload.Send(device);

  masked.Enqueue(stream);
  ScanRows(distributions);
  MergeScans(distributions);
  FindCuts(distributions);
  WeighRows(distributions);
  const RowTotal* totals = TotalRows(distributions, device);
  const LaunchShape shape{.grid = distributions.work().tile_grid(), .block = dim3(kTileThreads), .stream = stream};
  FT_CUDA_CHECK(Launch(WriteOrderTile, shape, distributions.work(), order_rows));
  ScanRows(searches);
  MergeScans(searches);
  device.AtSynchronize([tasks = std::vector(distributions.tasks().begin(), distributions.tasks().end()), totals,
                        top = TopTokens(searches, device), out = args.children] {
    for (size_t i = 0; i < out.size(); ++i) out[i] = ChildrenOf(tasks[i], totals[i], top.OfRow(i));
  });
}

}  // namespace

void BranchRows(const BranchRowsArgs& args, Device& device) {
  FT_CHECK(args.logits.dtype == DType::kF32 && args.num_tokens > 0 && args.num_tokens <= args.logits.shape[1]);
  FT_CHECK(args.children.size() == args.rows.size());
  constexpr size_t kRowsAtOnce = 64;  // enough for a GPU, while the memory for their values stays bounded
  for (size_t first = 0; first < args.rows.size(); first += kRowsAtOnce) {
    const size_t count = std::min(kRowsAtOnce, args.rows.size() - first);
    BranchRowsArgs some = args;
    some.rows = args.rows.subspan(first, count);
    some.children = args.children.subspan(first, count);
    BranchSome(some, device);
  }
}

}  // namespace foretoken::kernels::cuda
