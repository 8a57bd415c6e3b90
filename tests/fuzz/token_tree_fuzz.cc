// SPDX-License-Identifier: Apache-2.0
// Reads the input as a proposer's token tree. An accepted tree keeps the rules that the engine relies on, also after
// the engine's own changes, and comes back equal from the wire.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/rpc/tree_conversion.h"
#include "common/speculation/tested_tree.h"
#include "common/speculation/token_tree.h"
#include "kernels/check.h"

namespace foretoken::speculation {
namespace {

constexpr int32_t kNumTokens = 1000, kMaxNodes = 64;

// Every sampled child stands below its group's parent, in at most one group, and has a chance to be drawn.
void CheckSampled(const TokenTree& tree) {
  std::vector<bool> is_grouped(tree.nodes.size());
  for (const SampledChildren& group : tree.sampled) {
    FT_CHECK(group.draft != nullptr && !group.children.empty());
    FT_CHECK(std::is_sorted(group.children.begin(), group.children.end()));
    FT_CHECK(group.children.size() <= group.draft->token_ids.size());
    for (const int32_t child : group.children) {
      FT_CHECK(child >= 0 && child < tree.num_nodes() && !is_grouped[child]);
      is_grouped[child] = true;
      FT_CHECK(tree.nodes[child].parent == group.parent);
      const std::vector<int32_t>& ids = group.draft->token_ids;
      const auto entry = std::lower_bound(ids.begin(), ids.end(), tree.nodes[child].token_id);
      FT_CHECK(entry != ids.end() && *entry == tree.nodes[child].token_id);
      FT_CHECK(group.draft->probs[entry - ids.begin()] > 0);
    }
  }
}

void CheckTree(const TokenTree& tree) {
  FT_CHECK(Validate(tree, kNumTokens, kMaxNodes).ok());
  FT_CHECK(HasParentsFirst(tree));
  CheckSampled(tree);
}

bool AreEqual(const SampledChildren& a, const SampledChildren& b) {
  return a.parent == b.parent && a.children == b.children && a.draft->token_ids == b.draft->token_ids &&
         a.draft->probs == b.draft->probs;
}

void CheckWire(const TokenTree& tree, const rpc::WireTreeLimits& limits) {
  const absl::StatusOr<TokenTree> again = rpc::FromProto(rpc::ToProto(tree, /*session_id=*/1), limits);
  FT_CHECK(again.ok());
  FT_CHECK(again->position == tree.position && again->nodes == tree.nodes);
  FT_CHECK(std::ranges::equal(again->sampled, tree.sampled, AreEqual));
}

// The changes that the engine makes to a tree before it computes rows.
void CheckChanges(const TokenTree& tree) {
  for (const int32_t num_committed : {1, 2, 3}) {
    const int32_t leaf = tree.num_nodes() - 1;
    std::vector<int32_t> path;
    for (int32_t node = leaf; node != kRootParent; node = tree.nodes[node].parent) {
      path.insert(path.begin(), tree.nodes[node].token_id);
    }
    path.resize(std::min<size_t>(path.size(), num_committed));
    CheckTree(ReRoot(tree, path));
    CheckTree(CutDepth(tree, num_committed));
    CheckTree(BestNodes(tree, num_committed));
  }
  TokenTree other = CutDepth(tree, 2);
  for (TreeNode& node : other.nodes) node.proposers = 2;
  other.sampled.clear();
  const TokenTree trees[] = {tree, other};
  const TokenTree merged = Merge(trees);
  CheckTree(merged);
  std::vector<int32_t> rows = BestNodeIdx(merged, 4);
  std::sort(rows.begin(), rows.end());
  const verifier::TestedTree tested = verifier::MakeTestedTree(/*root_token_id=*/1, &merged, rows);
  FT_CHECK(tested.token_ids.size() == tested.parents.size() && tested.token_ids.size() > rows.size());
  for (size_t i = 1; i < tested.parents.size(); ++i) FT_CHECK(tested.parents[i] < static_cast<int32_t>(i));
}

}  // namespace
}  // namespace foretoken::speculation

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foretoken;
  v1::TokenTree message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  const rpc::WireTreeLimits limits = {
      .num_tokens = speculation::kNumTokens, .max_nodes = speculation::kMaxNodes, .proposers = 1};
  const absl::StatusOr<speculation::TokenTree> tree = rpc::FromProto(message, limits);
  if (!tree.ok()) {
    FT_CHECK(absl::IsInvalidArgument(tree.status()));
    return 0;
  }
  speculation::CheckTree(*tree);
  speculation::CheckWire(*tree, limits);
  speculation::CheckChanges(*tree);
  return 0;
}
