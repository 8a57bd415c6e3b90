// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/draw/flat_trees.h"

#include <algorithm>

#include "kernels/check.h"

namespace foretoken::kernels::cuda {
namespace {

template <typename T>
void Append(std::span<const T> from, std::vector<T>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

template <typename T>
int32_t SizeOf32(const std::vector<T>& values) {
  return static_cast<int32_t>(values.size());
}

int32_t NumRows(const TreeToAccept& tree) {
  return tree.rule == VerificationRule::kKeyedDraw ? static_cast<int32_t>(tree.parents.size()) : tree.num_rows;
}

void CheckTree(const TreeToAccept& tree, int32_t num_tokens) {
  const auto num_nodes = static_cast<int32_t>(tree.parents.size());
  FT_CHECK(num_nodes > 0 && tree.token_ids.size() == tree.parents.size());
  FT_CHECK(tree.masks.empty() || tree.masks.size() == tree.parents.size());
  FT_CHECK(NumRows(tree) > 0 && NumRows(tree) <= num_nodes);
  for (const DrawnChildren& drawn : tree.drawn) {
    FT_CHECK(drawn.parent < NumRows(tree) && drawn.draft_token_ids.size() == drawn.draft_probs.size());
    for (const int32_t child : drawn.children) {
      FT_CHECK(child > drawn.parent && child < num_nodes && tree.token_ids[child] < num_tokens);
    }
    for (const int32_t id : drawn.draft_token_ids) FT_CHECK(id >= 0 && id < num_tokens);
  }
}

}  // namespace

FlatTrees::FlatTrees(std::span<const TreeToAccept> trees, int32_t num_tokens) {
  for (const TreeToAccept& tree : trees) AddTree(tree, num_tokens);
}

void FlatTrees::AddTree(const TreeToAccept& tree, int32_t num_tokens) {
  CheckTree(tree, num_tokens);
  FlatTree flat{.rule = tree.rule,
                .first_node = SizeOf32(token_ids_),
                .num_nodes = static_cast<int32_t>(tree.parents.size()),
                .first_row = num_rows(),
                .num_rows = NumRows(tree),
                .groups_begin = SizeOf32(groups_),
                .context_len = tree.context_len,
                .coin_key = tree.sampling.coin_key(),
                .sample_index = tree.sampling.sample_index};
  Append(tree.token_ids, token_ids_);
  Append(tree.parents, parents_);
  const bool is_tested = tree.rule == VerificationRule::kRejectionSampling;
  if (is_tested) AddGroups(tree);
  flat.groups_end = SizeOf32(groups_);
  trees_.push_back(flat);
  for (int32_t node_idx = 0; node_idx < flat.num_rows; ++node_idx) {
    if (is_tested) AddTestTokens(tree, node_idx);
    test_begins_.push_back(SizeOf32(test_ids_));
  }
}

void FlatTrees::AddGroups(const TreeToAccept& tree) {
  for (const DrawnChildren& drawn : tree.drawn) {
    DrawnGroup group{
        .parent = drawn.parent, .children_begin = SizeOf32(children_), .draft_begin = SizeOf32(draft_ids_)};
    Append(drawn.children, children_);
    Append(drawn.draft_token_ids, draft_ids_);
    Append(drawn.draft_probs, draft_probs_);
    group.children_end = SizeOf32(children_);
    group.draft_end = SizeOf32(draft_ids_);
    groups_.push_back(group);
  }
}

void FlatTrees::AddTestTokens(const TreeToAccept& tree, int32_t node_idx) {
  const auto begin = test_ids_.size();
  for (const DrawnChildren& drawn : tree.drawn) {
    if (drawn.parent != node_idx) continue;
    Append(drawn.draft_token_ids, test_ids_);
    for (const int32_t child : drawn.children) test_ids_.push_back(tree.token_ids[child]);
  }
  const auto first = test_ids_.begin() + static_cast<std::ptrdiff_t>(begin);
  std::sort(first, test_ids_.end());
  test_ids_.erase(std::unique(first, test_ids_.end()), test_ids_.end());
}

void FlatTrees::AddTo(StagedUpload& upload, TreeArrays& arrays) const {
  arrays.num_trees = SizeOf32(trees_);
  upload.Add(std::span(trees_), &arrays.trees);
  upload.Add(std::span(token_ids_), &arrays.token_ids);
  upload.Add(std::span(parents_), &arrays.parents);
  upload.Add(std::span(groups_), &arrays.groups);
  upload.Add(std::span(children_), &arrays.children);
  upload.Add(std::span(draft_ids_), &arrays.draft_ids);
  upload.Add(std::span(draft_probs_), &arrays.draft_probs);
  upload.Add(std::span(test_begins_), &arrays.test_begins);
  upload.Add(std::span(test_ids_), &arrays.test_ids);
}

}  // namespace foretoken::kernels::cuda
