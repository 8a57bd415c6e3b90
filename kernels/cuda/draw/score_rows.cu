// SPDX-License-Identifier: Apache-2.0
// Bytes moved: the logits twice, for the largest and for the weights, and six more times where top tokens are
// requested.
#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/draw/row_tile.cuh"
#include "kernels/cuda/draw/scan_rows.h"
#include "kernels/cuda/draw/score_rows.h"

namespace foretoken::kernels::cuda {
namespace {

constexpr unsigned kThreads = 128;

// One thread per row.
__global__ void __launch_bounds__(kThreads) TakeGiven(const RowToScore* rows, int32_t num_rows, OrderedToken* given) {
  const auto row = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (row >= num_rows || (rows[row].is_wanted != nullptr && *rows[row].is_wanted == 0)) return;
  const int32_t id = *rows[row].token_id;
  given[row] = {rows[row].logits[id], id};
}

std::vector<RowTask> TasksOf(const std::vector<RowToScore>& rows, int32_t width) {
  std::vector<RowTask> tasks;
  tasks.reserve(rows.size());
  for (const RowToScore& row : rows) {
    tasks.push_back({.logits = row.logits, .is_wanted = row.is_wanted, .top_k = std::clamp(row.num_top, 0, width)});
  }
  return tasks;
}

}  // namespace

RowScores::RowScores(const std::vector<RowToScore>& rows, int32_t width, Device& device) {
  if (rows.empty()) return;
  StagedUpload upload;
  const RowBatch batch(TasksOf(rows, width), width, upload, device.stream());
  const RowToScore* uploaded = nullptr;
  upload.Add(std::span(rows), &uploaded);
  upload.Send(device);
  ScanRows(batch);
  MergeScans(batch);
  WeighRows(batch);  // nothing is cut yet
  totals_ = TotalRows(batch, device);

  const size_t given_bytes = rows.size() * sizeof(OrderedToken);
  const StreamScratch given(given_bytes, device.stream());
  const auto num_rows = static_cast<unsigned>(rows.size());
  const LaunchShape shape{
      .grid = dim3((num_rows + kThreads - 1) / kThreads), .block = dim3(kThreads), .stream = device.stream()};
  FT_CUDA_CHECK(
      Launch(TakeGiven, shape, uploaded, static_cast<int32_t>(num_rows), static_cast<OrderedToken*>(given.data())));
  given_ = static_cast<const OrderedToken*>(device.Download(given.data(), given_bytes));
  if (std::ranges::any_of(rows, [](const RowToScore& row) { return row.num_top > 0; })) top_.emplace(batch, device);
}

RowLogprobs RowScores::OfRow(size_t row) const {
  const RowTotal& total = totals_[row];
  if (total.status != DrawStatus::kOk) {
    return {.token = {given_[row].id, std::numeric_limits<float>::quiet_NaN()}, .top = {}};
  }
  const double log_sum = total.log_weight();
  const auto logprob = [&](float logit) { return static_cast<float>(double{logit} - total.max - log_sum); };
  RowLogprobs scores{.token = {given_[row].id, logprob(given_[row].value)}, .top = {}};
  if (!top_.has_value()) return scores;
  for (const OrderedToken& token : top_->OfRow(row)) scores.top.push_back({token.id, logprob(token.value)});
  return scores;
}

}  // namespace foretoken::kernels::cuda
