// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/draw/accept_trees.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/staged_upload.h"
#include "kernels/cuda/draw/adjusted_trees.h"
#include "kernels/cuda/draw/filter_cut.h"
#include "kernels/cuda/draw/flat_trees.h"
#include "kernels/cuda/draw/row_batch.h"
#include "kernels/cuda/draw/scan_rows.h"
#include "kernels/cuda/draw/score_rows.h"
#include "kernels/cuda/draw/walk_trees.h"
#include "kernels/cuda/draw/weigh_rows.h"

namespace foretoken::kernels::cuda {
namespace {

// The depth of each node below the root.
std::vector<uint32_t> DepthsOf(const TreeToAccept& tree) {
  std::vector<uint32_t> depths(tree.parents.size());
  for (size_t i = 1; i < depths.size(); ++i) depths[i] = depths[tree.parents[i]] + 1;
  return depths;
}

std::vector<RowTask> TasksOf(const AcceptTreesArgs& args, const FlatTrees& flat_trees,
                             std::span<const float* const> rows) {
  std::vector<RowTask> tasks;
  tasks.reserve(rows.size());
  for (size_t i = 0; i < args.trees.size(); ++i) {
    const TreeToAccept& tree = args.trees[i];
    const std::vector<uint32_t> depths = DepthsOf(tree);
    RowTask task = TaskOf(tree.sampling, args.num_tokens);
    task.has_noise = tree.rule == VerificationRule::kKeyedDraw && !task.is_greedy;
    for (int32_t node_idx = 0; node_idx < flat_trees.trees()[i].num_rows; ++node_idx) {
      task.logits = rows[tasks.size()];
      task.t = tree.context_len + depths[node_idx];
      tasks.push_back(task);
    }
  }
  return tasks;
}

// The results of the walks, to be copied to the host in one piece: rows' outcomes, then trees' statuses.
class WalkResults {
 public:
  WalkResults(const FlatTrees& flat_trees, cudaStream_t stream)
      : outcomes_bytes_(flat_trees.num_rows() * sizeof(RowOutcome)),
        num_bytes_(outcomes_bytes_ + flat_trees.trees().size() * sizeof(DrawStatus)),
        scratch_(num_bytes_, stream) {
    FT_CUDA_CHECK(cudaMemsetAsync(scratch_.data(), 0, outcomes_bytes_, stream));
  }

  RowOutcome* outcomes() const { return static_cast<RowOutcome*>(scratch_.data()); }
  DrawStatus* statuses() const {
    return reinterpret_cast<DrawStatus*>(static_cast<std::byte*>(scratch_.data()) + outcomes_bytes_);
  }
  const std::byte* Download(Device& device) const {
    return static_cast<const std::byte*>(device.Download(scratch_.data(), num_bytes_));
  }
  size_t outcomes_bytes() const { return outcomes_bytes_; }

 private:
  size_t outcomes_bytes_;
  size_t num_bytes_;
  StreamScratch scratch_;
};

// Enqueues everything between the upload and the copy of the walks' results.
void DrawAndWalk(const AcceptTreesArgs& args, const RowBatch& rows, const WalkTreesArgs& walks) {
  const auto any = [&](VerificationRule rule) {
    return std::ranges::any_of(args.trees, [rule](const TreeToAccept& tree) { return tree.rule == rule; });
  };
  const bool any_tested = any(VerificationRule::kRejectionSampling);
  const bool any_cut = std::ranges::any_of(rows.tasks(), [](const RowTask& task) { return task.has_cut(); });
  ScanRows(rows);
  if (any_cut || any_tested) MergeScans(rows);
  if (any_cut) {
    FindCuts(rows);
    ScanCutRows(rows);
  }
  if (any(VerificationRule::kKeyedDraw)) WalkByKeyedDraw(walks, rows.stream());
  if (any_tested) {
    WeighRows(rows);
    WalkByRejection(walks, rows.stream());
  }
}

// Returns the rows on the walks of trees that ask for log-probabilities. `begins` gets the first of each tree's rows.
std::vector<RowToScore> RowsToScore(std::span<const TreeToAccept> trees, const FlatTrees& flat_trees,
                                    std::span<const float* const> given, const RowOutcome* outcomes,
                                    std::vector<size_t>& begins) {
  std::vector<RowToScore> rows;
  for (size_t i = 0; i < trees.size(); ++i) {
    begins.push_back(rows.size());
    if (!trees[i].num_top_logprobs.has_value()) continue;
    const FlatTree& flat = flat_trees.trees()[i];
    for (int32_t row = flat.first_row; row < flat.first_row + flat.num_rows; ++row) {
      rows.push_back({.logits = given[row],
                      .token_id = &outcomes[row].token_id,
                      .is_wanted = &outcomes[row].is_visited,
                      .num_top = *trees[i].num_top_logprobs});
    }
  }
  begins.push_back(rows.size());
  return rows;
}

// The host's input for making paths. Pointers are to its copy of the device's results.
struct Results {
  std::vector<FlatTree> trees;
  const RowOutcome* outcomes;
  const DrawStatus* statuses;
  RowScores scores;
  std::vector<size_t> score_begins;  // [trees + 1]

  // A path is the visited rows of its tree in order, because a node comes after its parent.
  AcceptedPath PathOf(size_t i) const {
    const FlatTree& tree = trees[i];
    AcceptedPath path{.status = statuses[i], .token_ids = {}, .node_idx = {}, .logprobs = {}};
    for (int32_t node_idx = 0; node_idx < tree.num_rows; ++node_idx) {
      const RowOutcome& outcome = outcomes[tree.first_row + node_idx];
      if (outcome.is_visited == 0) continue;
      path.node_idx.push_back(node_idx);
      path.token_ids.push_back(outcome.token_id);
      if (score_begins[i] < score_begins[i + 1]) path.logprobs.push_back(scores.OfRow(score_begins[i] + node_idx));
    }
    return path;
  }
};

}  // namespace

void AcceptTrees(const AcceptTreesArgs& args, Device& device) {
  FT_CHECK(args.logits.dtype == DType::kF32 && args.num_tokens > 0 && args.num_tokens <= args.logits.shape[1]);
  FT_CHECK(args.paths.size() == args.trees.size());
  if (args.trees.empty()) return;
  const cudaStream_t stream = device.stream();
  const FlatTrees flat_trees(args.trees, args.num_tokens);
  StagedUpload upload;
  TreeArrays arrays;
  flat_trees.AddTo(upload, arrays);
  AdjustedTrees adjusted(args, flat_trees, upload, stream);
  const RowBatch rows(TasksOf(args, flat_trees, adjusted.adjusted()), args.num_tokens, upload, stream);
  upload.Send(device);

  const WalkResults on_device(flat_trees, stream);
  const StreamScratch draft_left((flat_trees.num_draft_tokens() + 1) * sizeof(double), stream);
  const StreamScratch target_left((flat_trees.num_test_tokens() + 1) * sizeof(FixedWeight), stream);
  adjusted.Enqueue(arrays, stream);
  DrawAndWalk(args, rows,
              {.rows = rows.work(),
               .trees = arrays,
               .outcomes = on_device.outcomes(),
               .statuses = on_device.statuses(),
               .draft_left = static_cast<double*>(draft_left.data()),
               .target_left = static_cast<FixedWeight*>(target_left.data())});

  std::vector<size_t> score_begins;
  const std::vector<RowToScore> to_score =
      RowsToScore(args.trees, flat_trees, adjusted.given(), on_device.outcomes(), score_begins);
  const std::byte* on_host = on_device.Download(device);
  Results results{.trees = {flat_trees.trees().begin(), flat_trees.trees().end()},
                  .outcomes = reinterpret_cast<const RowOutcome*>(on_host),
                  .statuses = reinterpret_cast<const DrawStatus*>(on_host + on_device.outcomes_bytes()),
                  .scores = RowScores(to_score, static_cast<int32_t>(args.logits.shape[1]), device),
                  .score_begins = std::move(score_begins)};
  device.AtSynchronize([results = std::move(results), paths = args.paths] {
    for (size_t i = 0; i < paths.size(); ++i) paths[i] = results.PathOf(i);
  });
}

}  // namespace foretoken::kernels::cuda
