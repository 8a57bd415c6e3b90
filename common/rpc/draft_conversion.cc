// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/draft_conversion.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/check.h"

namespace foretoken::rpc {
namespace {

using speculation::DraftDistribution;
using speculation::kRootParent;

template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("token tree ", parts...));
}

std::string NodeName(int32_t node_idx) { return node_idx == kRootParent ? "root" : absl::StrCat("node ", node_idx); }

absl::Status CheckSizes(const v1::TokenTree& message) {
  const int64_t num_parents = int64_t{1} + message.token_ids_size();
  if (message.distribution_indices_size() != num_parents) {
    return Refuse("distribution_indices: expected ", num_parents, ", one for the root and one per node, got ",
                  message.distribution_indices_size());
  }
  int64_t num_entries = 0;
  for (int i = 0; i < message.draft_probs_size(); ++i) {
    const v1::SparseDistribution& draft = message.draft_probs(i);
    if (draft.token_ids_size() != draft.probabilities_size()) {
      return Refuse("draft_probs ", i, ": expected one probability per id, got ", draft.token_ids_size(), " ids and ",
                    draft.probabilities_size(), " probabilities");
    }
    if (draft.token_ids_size() > kMaxDraftEntries) {
      return Refuse("draft_probs ", i, ": expected at most ", kMaxDraftEntries, " entries, got ",
                    draft.token_ids_size());
    }
    num_entries += draft.token_ids_size();
  }
  if (num_entries > kMaxTreeDraftEntries) {
    return Refuse("draft_probs: expected at most ", kMaxTreeDraftEntries, " entries in all, got ", num_entries);
  }
  return absl::OkStatus();
}

absl::Status CheckEntries(const v1::SparseDistribution& draft, int draft_idx, int32_t num_tokens) {
  double sum = 0;
  int64_t previous = -1;
  for (int i = 0; i < draft.token_ids_size(); ++i) {
    const int64_t token_id = draft.token_ids(i);
    const float prob = draft.probabilities(i);
    if (token_id <= previous || token_id >= num_tokens) {
      return Refuse("draft_probs ", draft_idx, ": token ids expected strictly ascending and below ", num_tokens,
                    ", got ", token_id, " at entry ", i);
    }
    if (!(prob >= 0 && prob <= kMaxDraftSum)) {  // a NaN fails too
      return Refuse("draft_probs ", draft_idx, ": probability of token ", token_id, " expected in [0, 1], got ", prob);
    }
    previous = token_id;
    sum += prob;
  }
  if (!(sum > 0 && sum <= kMaxDraftSum)) {
    return Refuse("draft_probs ", draft_idx, ": sum of probabilities expected in (0, 1], got ", sum);
  }
  return absl::OkStatus();
}

absl::Status CheckChild(const speculation::TokenTree& tree, int32_t child, const DraftDistribution& draft) {
  const int32_t token_id = tree.nodes[child].token_id;
  const auto entry = std::lower_bound(draft.token_ids.begin(), draft.token_ids.end(), token_id);
  if (entry == draft.token_ids.end() || *entry != token_id) {
    return Refuse("node ", child, ": expected a token of its parent's distribution, got ", token_id);
  }
  if (draft.probs[entry - draft.token_ids.begin()] <= 0) {
    return Refuse("node ", child, ": expected a token that could be sampled, got ", token_id, " of probability 0");
  }
  return absl::OkStatus();
}

// Groups the children by parent, and returns the distribution that each parent names.
absl::StatusOr<std::vector<int32_t>> GroupChildren(const v1::TokenTree& message, speculation::TokenTree& tree) {
  std::vector<int32_t> group_of_parent(tree.nodes.size() + 1, -1);  // the root comes first
  std::vector<int32_t> draft_idx;
  for (int32_t node = 0; node < tree.num_nodes(); ++node) {
    const int32_t parent = tree.nodes[node].parent;
    int32_t& group = group_of_parent[parent + 1];
    if (group < 0) {
      group = static_cast<int32_t>(tree.sampled.size());
      tree.sampled.push_back({.parent = parent});
      draft_idx.push_back(message.distribution_indices(parent + 1));
      if (draft_idx.back() < 0 || draft_idx.back() >= message.draft_probs_size()) {
        return Refuse(NodeName(parent), ": has children, distribution index expected in [0, ",
                      message.draft_probs_size(), "), got ", draft_idx.back());
      }
    }
    tree.sampled[group].children.push_back(node);
  }
  for (int32_t parent = kRootParent; parent < tree.num_nodes(); ++parent) {
    const int32_t index = message.distribution_indices(parent + 1);
    if (group_of_parent[parent + 1] < 0 && index != -1) {
      return Refuse(NodeName(parent), ": has no children, distribution index expected -1, got ", index);
    }
  }
  return draft_idx;
}

}  // namespace

absl::Status ReadDraft(const v1::TokenTree& message, int32_t num_tokens, speculation::TokenTree& tree) {
  FT_RETURN_IF_ERROR(CheckSizes(message));
  std::vector<std::shared_ptr<const DraftDistribution>> drafts;
  drafts.reserve(message.draft_probs_size());
  for (int i = 0; i < message.draft_probs_size(); ++i) {
    const v1::SparseDistribution& draft = message.draft_probs(i);
    FT_RETURN_IF_ERROR(CheckEntries(draft, i, num_tokens));
    drafts.push_back(std::make_shared<DraftDistribution>(
        DraftDistribution{.token_ids = std::vector<int32_t>(draft.token_ids().begin(), draft.token_ids().end()),
                          .probs = std::vector<float>(draft.probabilities().begin(), draft.probabilities().end())}));
  }
  FT_ASSIGN_OR_RETURN(const std::vector<int32_t> draft_idx, GroupChildren(message, tree));
  std::vector<bool> is_used(drafts.size());
  for (size_t i = 0; i < tree.sampled.size(); ++i) {
    speculation::SampledChildren& group = tree.sampled[i];
    group.draft = drafts[draft_idx[i]];
    is_used[draft_idx[i]] = true;
    for (const int32_t child : group.children) FT_RETURN_IF_ERROR(CheckChild(tree, child, *group.draft));
  }
  if (const auto unused = std::find(is_used.begin(), is_used.end(), false); unused != is_used.end()) {
    return Refuse("draft_probs ", unused - is_used.begin(), ": expected a node that uses it, got none");
  }
  return absl::OkStatus();
}

void WriteDraft(const speculation::TokenTree& tree, v1::TokenTree& message) {
  absl::flat_hash_map<const DraftDistribution*, int32_t> places;
  message.mutable_distribution_indices()->Resize(tree.num_nodes() + 1, -1);
  size_t num_children = 0;
  for (const speculation::SampledChildren& group : tree.sampled) {
    FT_CHECK(std::is_sorted(group.children.begin(), group.children.end()));
    const auto [place, is_new] = places.try_emplace(group.draft.get(), message.draft_probs_size());
    if (is_new) {
      v1::SparseDistribution& draft = *message.add_draft_probs();
      draft.mutable_token_ids()->Add(group.draft->token_ids.begin(), group.draft->token_ids.end());
      draft.mutable_probabilities()->Add(group.draft->probs.begin(), group.draft->probs.end());
    }
    FT_CHECK(message.distribution_indices(group.parent + 1) == -1);
    message.set_distribution_indices(group.parent + 1, place->second);
    num_children += group.children.size();
  }
  FT_CHECK(num_children == tree.nodes.size());
}

}  // namespace foretoken::rpc
