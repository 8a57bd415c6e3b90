// SPDX-License-Identifier: Apache-2.0
// The trees to accept in the form that kernels take: flat arrays, in which a tree's nodes, rows and drawn children
// stand together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/base/staged_upload.h"
#include "kernels/cuda/draw/row_batch.h"
#include "kernels/ops.h"

namespace foretoken::kernels::cuda {

// One tree. Node i's entry is first_node + i. Its row, if it has one, is first_row + i.
struct FlatTree {
  VerificationRule rule = VerificationRule::kKeyedDraw;
  int32_t first_node = 0;
  int32_t num_nodes = 0;
  int32_t first_row = 0;
  int32_t num_rows = 0;
  int32_t groups_begin = 0;
  int32_t groups_end = 0;
  uint32_t context_len = 0;
  uint64_t coin_key = 0;
  uint32_t sample_index = 0;
};

// The children that one proposer drew at a node, by node index, and the distribution that it drew them from. Without
// probabilities each child is a point mass.
struct DrawnGroup {
  int32_t parent = 0;
  int32_t children_begin = 0;
  int32_t children_end = 0;
  int32_t draft_begin = 0;
  int32_t draft_end = 0;
};

// All pointers are the device's.
struct TreeArrays {
  const FlatTree* trees = nullptr;
  const int32_t* token_ids = nullptr;    // of nodes
  const int32_t* parents = nullptr;      // of nodes, within their tree
  const DrawnGroup* groups = nullptr;    // by tree, then as given
  const int32_t* children = nullptr;     // of groups
  const int32_t* draft_ids = nullptr;    // of groups
  const float* draft_probs = nullptr;    // of groups
  const int32_t* test_begins = nullptr;  // [rows + 1] into test_ids
  const int32_t* test_ids = nullptr;     // by row: the tokens that its children's test may change, ascending, distinct
  int32_t num_trees = 0;
};

// The same arrays on the host, filled tree by tree.
class FlatTrees {
 public:
  // Checks the conditions that the args name.
  FlatTrees(std::span<const TreeToAccept> trees, int32_t num_tokens);

  std::span<const FlatTree> trees() const { return trees_; }
  int32_t num_rows() const { return static_cast<int32_t>(test_begins_.size()) - 1; }
  size_t num_draft_tokens() const { return draft_ids_.size(); }
  size_t num_test_tokens() const { return test_ids_.size(); }

  // The arrays go with `upload`; both stay in place until it is sent.
  void AddTo(StagedUpload& upload, TreeArrays& arrays) const;

 private:
  void AddTree(const TreeToAccept& tree, int32_t num_tokens);
  void AddGroups(const TreeToAccept& tree);
  void AddTestTokens(const TreeToAccept& tree, int32_t node_idx);

  std::vector<FlatTree> trees_;
  std::vector<int32_t> token_ids_, parents_;
  std::vector<DrawnGroup> groups_;
  std::vector<int32_t> children_, draft_ids_;
  std::vector<float> draft_probs_;
  std::vector<int32_t> test_begins_ = {0}, test_ids_;
};

}  // namespace foretoken::kernels::cuda
