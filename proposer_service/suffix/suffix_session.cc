// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/suffix/suffix_session.h"

#include <utility>

#include "proposer_service/suffix/suffix_growth.h"

namespace foretoken::proposer {

SuffixSession::SuffixSession(const SuffixOptions& options, const SuffixMemory& memory, SuffixOwner owner, Learn learn)
    : options_(options),
      memory_(memory),
      owner_(std::move(owner)),
      learn_(std::move(learn)),
      window_(2 * options.max_depth),
      tree_({.max_depth = options.max_depth}),
      root_(tree_.AddRoot()),
      shared_match_(memory, owner_) {}

SuffixSession::~SuffixSession() {
  if (output_.size() > kLeadTokens) learn_({.owner = owner_, .tokens = std::move(output_)});
}

void SuffixSession::Want(const TreeRequest& tree_request) {
  allowed_ = tree_request.allowed;
  if (!in_opening_) return;
  in_opening_ = false;
  const std::span<const int32_t> lead = window_.Last(std::min(window_.size(), kLeadTokens));
  output_.assign(lead.begin(), lead.end());
}

void SuffixSession::Append(std::span<const int32_t> token_ids) {
  for (const int32_t token_id : token_ids) {
    if (SuffixCursor match = tree_.active(); match.depth > 0) {
      const SuffixCursor before = match;
      confidence_.Record(before.depth, before.count, tree_.Extend(match, token_id));
    }
    tree_.Append(root_, token_id);
    window_.Push(token_id);
  }
  position_ += token_ids.size();
  if (!token_ids.empty()) allowed_ = {};
  if (!in_opening_) output_.insert(output_.end(), token_ids.begin(), token_ids.end());
  if (!token_ids.empty()) shared_match_.Advance(window_, token_ids.size());
}

speculation::TokenTree SuffixSession::Propose(int32_t node_budget) {
  const SuffixMemory::Reader reader(memory_);
  const auto restricted = [this](const SuffixTree& tree, const SuffixCursor& match, std::optional<NodeIdx> root) {
    return root.has_value() ? LongestAllowed(tree, match, {.root = *root, .window = window_, .allowed = allowed_})
                            : match;
  };
  const SuffixCursor& shared_match = shared_match_.Get(reader, window_);
  const SuffixSource own = {.tree = &tree_,
                            .match = restricted(tree_, tree_.active(), root_),
                            .confidence = &confidence_,
                            .is_own_text = true};
  const SuffixSource shared = {.tree = &reader.tree(),
                               .match = restricted(reader.tree(), shared_match, shared_match_.root()),
                               .confidence = &shared_match_.confidence()};
  speculation::TokenTree tree =
      GrowSuffixTree({own, shared}, {.node_budget = node_budget, .allowed = allowed_}, options_);
  tree.position = position_;
  return tree;
}

}  // namespace foretoken::proposer
