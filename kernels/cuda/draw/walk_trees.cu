// SPDX-License-Identifier: Apache-2.0
// Keyed draw: one warp per tree. The scan has left every row's best token by tile; only for the rows on the walk are
// the tiles merged. Rejection sampling: one block per tree, which tests drafted tokens together and reads one tile of
// logits when it draws the last token.
// Bytes moved: next to none.
#include <optional>

#include "kernels/cuda/base/check.h"
#include "kernels/cuda/base/launch.h"
#include "kernels/cuda/draw/merge_scans.cuh"
#include "kernels/cuda/draw/tested_distributions.cuh"
#include "kernels/cuda/draw/walk_trees.h"
#include "kernels/keyed_coins.h"
#include "kernels/rejection_sampling.h"

namespace foretoken::kernels::cuda {
namespace {

// The first child of the node that carries the token, or num_nodes. Every thread of a warp's block calls it.
__device__ int32_t FindChild(const TreeArrays& trees, const FlatTree& tree, int32_t node_idx, int32_t token_id,
                             int32_t* scratch) {
  const int32_t* parents = trees.parents + tree.first_node;
  const int32_t* token_ids = trees.token_ids + tree.first_node;
  int32_t first = tree.num_nodes;
  for (int32_t i = node_idx + 1 + static_cast<int32_t>(threadIdx.x); i < first; i += kWarpThreads) {
    if (parents[i] == node_idx && token_ids[i] == token_id) first = i;
  }
  return BlockFold<kWarpThreads>(
      first, [](int32_t a, int32_t b) { return a < b ? a : b; }, scratch);
}

__global__ void __launch_bounds__(kWarpThreads) WalkKeyedTree(WalkTreesArgs args) {
  __shared__ TileScan scans[kWarpThreads];
  __shared__ int32_t children[kWarpThreads];
  const FlatTree& tree = args.trees.trees[blockIdx.x];
  if (tree.rule != VerificationRule::kKeyedDraw) return;
  auto status = DrawStatus::kOk;
  for (int32_t node_idx = 0; node_idx < tree.num_nodes;) {
    const int32_t row = tree.first_row + node_idx;
    const TileScan draw = MergeTiles<kWarpThreads>(args.rows, row, scans);
    status = StatusOf(draw);
    if (status != DrawStatus::kOk) break;
    if (threadIdx.x == 0) args.outcomes[row] = {.is_visited = 1, .token_id = draw.id};
    node_idx = FindChild(args.trees, tree, node_idx, draw.id, children);
  }
  if (threadIdx.x == 0) args.statuses[blockIdx.x] = status;
}

// Has the interface of TreeToAccept for TestChildren. It makes the drawn children when they are read.
class TreeToTest {
 public:
  class Iterator {
   public:
    __device__ Iterator(const WalkTreesArgs& args, int32_t group) : args_(args), group_(group) {}
    __device__ DrawnAtNode operator*() const {
      const TreeArrays& trees = args_.trees;
      const DrawnGroup& group = trees.groups[group_];
      const auto num_drafts = static_cast<size_t>(group.draft_end - group.draft_begin);
      return {.parent = group.parent,
              .children = {trees.children + group.children_begin, trees.children + group.children_end},
              .draft_token_ids = {trees.draft_ids + group.draft_begin, num_drafts},
              .draft_probs = trees.draft_probs + group.draft_begin,
              .left = args_.draft_left + group.draft_begin};
    }
    __device__ Iterator& operator++() {
      ++group_;
      return *this;
    }
    __device__ bool operator!=(const Iterator& other) const { return group_ != other.group_; }

   private:
    const WalkTreesArgs& args_;
    int32_t group_;
  };
  struct Groups {
    Iterator first, last;
    __device__ Iterator begin() const { return first; }
    __device__ Iterator end() const { return last; }
  };

  __device__ TreeToTest(const WalkTreesArgs& args, const FlatTree& tree)
      : token_ids(args.trees.token_ids + tree.first_node),
        drawn{Iterator(args, tree.groups_begin), Iterator(args, tree.groups_end)} {}

  const int32_t* token_ids;
  Groups drawn;
};

__global__ void __launch_bounds__(kTileThreads) WalkTestedTree(WalkTreesArgs args) {
  const FlatTree& tree = args.trees.trees[blockIdx.x];
  if (tree.rule != VerificationRule::kRejectionSampling) return;
  const TreeToTest to_test(args, tree);
  KeyedCoins coins(tree.coin_key, tree.sample_index);
  auto status = DrawStatus::kOk;
  uint32_t t = tree.context_len;
  for (int32_t node_idx = 0; node_idx < tree.num_rows; ++t) {
    const int32_t row = tree.first_row + node_idx;
    status = args.rows.states[row].status;
    if (status != DrawStatus::kOk) break;
    coins.Begin(t);
    const int32_t begin = args.trees.test_begins[row], end = args.trees.test_begins[row + 1];
    BlockResidual target(args.rows, row, {args.trees.test_ids + begin, args.trees.test_ids + end},
                         args.target_left + begin);
    const std::optional<int32_t> child = TestChildren<BlockDraft>(to_test, node_idx, target, coins);
    const int32_t token_id = child.has_value() ? to_test.token_ids[*child] : target.Draw(coins.Toss());
    if (threadIdx.x == 0) args.outcomes[row] = {.is_visited = 1, .token_id = token_id};
    node_idx = child.value_or(tree.num_rows);
  }
  if (threadIdx.x == 0) args.statuses[blockIdx.x] = status;
}

}  // namespace

void WalkByKeyedDraw(const WalkTreesArgs& args, cudaStream_t stream) {
  const auto num_trees = static_cast<unsigned>(args.trees.num_trees);
  FT_CUDA_CHECK(Launch(WalkKeyedTree, {.grid = dim3(num_trees), .block = dim3(kWarpThreads), .stream = stream}, args));
}

void WalkByRejection(const WalkTreesArgs& args, cudaStream_t stream) {
  const auto num_trees = static_cast<unsigned>(args.trees.num_trees);
  FT_CUDA_CHECK(Launch(WalkTestedTree, {.grid = dim3(num_trees), .block = dim3(kTileThreads), .stream = stream}, args));
}

}  // namespace foretoken::kernels::cuda
