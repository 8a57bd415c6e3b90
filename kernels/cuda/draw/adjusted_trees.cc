// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/draw/adjusted_trees.h"

#include <algorithm>

#include "kernels/check.h"

namespace foretoken::kernels::cuda {
namespace {

bool HasPenalty(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
}

// The tokens of the nodes below the root that have rows, distinct and ascending.
std::vector<int32_t> TokensOnPaths(const TreeToAccept& tree, const FlatTree& flat) {
  const auto nodes = tree.token_ids.subspan(1, flat.num_rows - 1);
  std::vector<int32_t> ids(nodes.begin(), nodes.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

AdjustedTrees::AdjustedTrees(const AcceptTreesArgs& args, const FlatTrees& flat_trees, StagedUpload& upload,
                             cudaStream_t stream) {
  for (size_t i = 0; i < args.trees.size(); ++i) AddTree(args, args.trees[i], flat_trees.trees()[i]);
  adjusted_ = given_;
  if (rows_.empty()) return;
  // Each row begins at a multiple of four entries, so that groups of logits can be loaded whole.
  const size_t width = (static_cast<size_t>(args.num_tokens) + 3) / 4 * 4;
  copies_.emplace(rows_.size() * width * sizeof(float), stream);
  for (size_t i = 0; i < rows_.size(); ++i) {
    rows_[i].to = static_cast<float*>(copies_->data()) + i * width;
    adjusted_[row_idx_[i]] = rows_[i].to;
  }
  args_.num_rows = static_cast<int32_t>(rows_.size());
  args_.num_tokens = args.num_tokens;
  upload.Add(std::span<const RowAdjustment>(rows_), &args_.rows);
  upload.Add(std::span<const LogitBias>(bias_), &args_.bias);
  upload.Add(std::span<const TokenCount>(counts_), &args_.counts);
}

void AdjustedTrees::AddTree(const AcceptTreesArgs& args, const TreeToAccept& tree, const FlatTree& flat) {
  FT_CHECK(tree.first_logit_row >= 0 && int64_t{tree.first_logit_row} + flat.num_rows <= args.logits.shape[0]);
  RowAdjustment row{.root = flat.first_node,
                    .repetition_penalty = tree.sampling.repetition_penalty,
                    .presence_penalty = tree.sampling.presence_penalty,
                    .frequency_penalty = tree.sampling.frequency_penalty};
  row.bias_begin = static_cast<int32_t>(bias_.size());
  for (const LogitBias& bias : tree.bias) {
    if (bias.token_id >= 0 && bias.token_id < args.num_tokens) bias_.push_back(bias);
  }
  row.bias_end = static_cast<int32_t>(bias_.size());
  AddCounts(tree, flat, args.num_tokens, row);
  const bool has_edits = row.bias_begin < row.bias_end || row.counts_begin < row.counts_end;
  for (int32_t node_idx = 0; node_idx < flat.num_rows; ++node_idx) {
    row.from = args.logits.as<float>() + (int64_t{tree.first_logit_row} + node_idx) * args.logits.shape[1];
    row.mask = tree.masks.empty() ? nullptr : tree.masks[node_idx];
    row.node = flat.first_node + node_idx;
    if (has_edits || row.mask != nullptr) {
      row_idx_.push_back(given_.size());
      rows_.push_back(row);
    }
    given_.push_back(row.from);
  }
}

void AdjustedTrees::AddCounts(const TreeToAccept& tree, const FlatTree& flat, int32_t num_tokens, RowAdjustment& row) {
  row.counts_begin = row.path_begin = row.counts_end = static_cast<int32_t>(counts_.size());
  if (!HasPenalty(tree.sampling)) return;
  const auto exists = [num_tokens](int32_t id) { return id >= 0 && id < num_tokens; };
  const std::vector<int32_t> on_paths = TokensOnPaths(tree, flat);
  std::vector<bool> is_in_context(on_paths.size());
  for (const TokenCount& count : tree.counts) {
    if (!exists(count.token_id)) continue;
    counts_.push_back(count);
    const auto found = std::lower_bound(on_paths.begin(), on_paths.end(), count.token_id);
    if (found != on_paths.end() && *found == count.token_id) is_in_context[found - on_paths.begin()] = true;
  }
  row.path_begin = static_cast<int32_t>(counts_.size());
  for (size_t i = 0; i < on_paths.size(); ++i) {
    if (exists(on_paths[i]) && !is_in_context[i]) counts_.push_back({.token_id = on_paths[i]});
  }
  row.counts_end = static_cast<int32_t>(counts_.size());
}

void AdjustedTrees::Enqueue(const TreeArrays& trees, cudaStream_t stream) {
  if (rows_.empty()) return;
  args_.token_ids = trees.token_ids;
  args_.parents = trees.parents;
  AdjustRows(args_, stream);
}

}  // namespace foretoken::kernels::cuda
