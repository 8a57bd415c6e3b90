// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/draft/draft_session.h"

#include <utility>

namespace foretoken::proposer {
namespace {

// The best nodes of a tree. Groups of sampled children stand in the order of their parents' chances, and a group comes
// whole or not at all, as in GrowingTree::Snapshot.
speculation::TokenTree BestOf(const speculation::TokenTree& tree, int32_t max_nodes) {
  if (tree.sampled.empty()) return speculation::BestNodes(tree, max_nodes);
  size_t num_groups = 0;
  int32_t num_nodes = 0;
  for (; num_groups < tree.sampled.size(); ++num_groups) {
    const auto num_children = static_cast<int32_t>(tree.sampled[num_groups].children.size());
    if (num_nodes + num_children > max_nodes) break;
    num_nodes += num_children;
  }
  speculation::TokenTree best = tree;
  best.nodes.resize(num_nodes);
  best.sampled.resize(num_groups);
  return best;
}

// The assignment of {} would keep the memory.
template <typename T>
void Free(std::vector<T>& values) {
  std::vector<T>().swap(values);
}

}  // namespace

void DraftMailbox::Append(std::span<const int32_t> token_ids) {
  if (token_ids.empty()) return;
  absl::MutexLock lock(&mutex_);
  pending_.insert(pending_.end(), token_ids.begin(), token_ids.end());
  position_ += token_ids.size();
  tree_request_.allowed = tree_allowed_ = {};
  if (tree_.has_value()) tree_ = ReRooted(*tree_, token_ids);
  if (tree_.has_value() && tree_->num_nodes() == 0) tree_.reset();
}

speculation::TokenTree DraftMailbox::ReRooted(const speculation::TokenTree& tree,
                                              std::span<const int32_t> token_ids) const {
  speculation::TokenTree result = speculation::ReRoot(tree, token_ids);
  if (reads_features_) {
    result.num_predicted_features = tree.num_predicted_features + static_cast<uint32_t>(token_ids.size());
  }
  return result;
}

void DraftMailbox::AppendFeatures(uint64_t first_position, std::span<const uint16_t> values,
                                  const std::shared_ptr<DraftMailbox>& self) {
  {
    absl::MutexLock lock(&mutex_);
    if (is_refused_ || is_forgotten_) return;
    reads_features_ = true;
    if (pending_features_.empty()) first_feature_position_ = first_position;
    pending_features_.insert(pending_features_.end(), values.begin(), values.end());
  }
  EnterInbox(self);
}

int64_t DraftMailbox::num_unused_feature_values() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int64_t>(pending_features_.size()) + num_collected_values_;
}

void DraftMailbox::SetUnused(int64_t num_collected_values) {
  absl::MutexLock lock(&mutex_);
  num_collected_values_ = num_collected_values;
}

std::optional<speculation::TokenTree> DraftMailbox::Restricted(speculation::TokenTree tree,
                                                               const speculation::AllowedTokens& allowed) const {
  if (allowed == tree_request_.allowed) return tree;
  if (!tree.sampled.empty()) return std::nullopt;
  tree = speculation::KeepAllowed(tree, tree_request_.allowed);
  if (tree.num_nodes() == 0) return std::nullopt;
  return tree;
}

void DraftMailbox::Want(const TreeRequest& tree_request, const Situation& situation,
                        const std::shared_ptr<DraftMailbox>& self) {
  {
    absl::MutexLock lock(&mutex_);
    tree_request_ = tree_request;
    if (tree_.has_value()) tree_ = Restricted(*std::move(tree_), tree_allowed_);
    needed_no_pass_ = tree_.has_value();
    is_held_ = tree_.has_value() && tree_->sampled.empty() &&
               IsWorthAnotherPass(*tree_, tree_request.node_budget, situation.next_pass,
                                  {.step = tree_request.step, .left = tree_request.until_next_step});
    is_answered_ = false;
    asked_at_ = situation.now;
    if (tree_request.node_budget == 0) {
      unanswered_since_.reset();
      is_overdue_ = false;
    } else if (!unanswered_since_.has_value()) {
      unanswered_since_ = situation.now;
    }
  }
  EnterInbox(self);
}

void DraftMailbox::Close(const std::shared_ptr<DraftMailbox>& self) {
  {
    absl::MutexLock lock(&mutex_);
    is_closed_ = true;
    // A peer may open and close many sessions before the growth thread looks.
    Free(pending_features_);
    Free(pending_);
    tree_.reset();
    tree_allowed_ = {};
    tree_request_ = {};
  }
  EnterInbox(self);
}

void DraftMailbox::EnterInbox(const std::shared_ptr<DraftMailbox>& self) {
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(is_in_inbox_, true)) return;
  }
  enter_inbox_(self);
}

uint64_t DraftMailbox::position() const {
  absl::MutexLock lock(&mutex_);
  return position_;
}

Readiness DraftMailbox::readiness() const {
  absl::MutexLock lock(&mutex_);
  if (is_refused_) return Readiness::kRefused;
  if (is_forgotten_) return Readiness::kForgotten;
  const bool has_tree = tree_.has_value() && !is_held_;
  return has_tree || is_overdue_ ? Readiness::kReady : Readiness::kNotYet;
}

bool DraftMailbox::has_tree() const {
  absl::MutexLock lock(&mutex_);
  return tree_.has_value();
}

DraftMailbox::Answer DraftMailbox::Take(int32_t node_budget) {
  absl::MutexLock lock(&mutex_);
  unanswered_since_.reset();
  is_overdue_ = false;
  if (!tree_.has_value()) return {.tree = {.position = position_}};
  return {.tree = BestOf(*tree_, node_budget),
          .is_first = !std::exchange(is_answered_, true),
          .needed_no_pass = needed_no_pass_,
          .asked_at = asked_at_};
}

DraftMailbox::Update DraftMailbox::Collect() {
  absl::MutexLock lock(&mutex_);
  is_in_inbox_ = false;
  num_collected_values_ += static_cast<int64_t>(pending_features_.size());
  return {.token_ids = std::exchange(pending_, {}),
          .first_feature_position = first_feature_position_,
          .features = std::exchange(pending_features_, {}),
          .tree_request = tree_request_,
          .asked_at = asked_at_,
          .is_owed = tree_request_.node_budget > 0 && (!tree_.has_value() || is_held_),
          .is_closed = is_closed_};
}

void DraftMailbox::Publish(Snapshot snapshot) {
  absl::MutexLock lock(&mutex_);
  // While the mailbox is in the inbox, the growth thread has not seen the request that this tree is held for.
  if (!is_in_inbox_) is_held_ = false;
  if (!pending_.empty()) {
    snapshot.tree = ReRooted(snapshot.tree, pending_);
    if (snapshot.tree.num_nodes() == 0) return;  // the tokens left the tree
    snapshot.allowed = {};
  }
  std::optional<speculation::TokenTree> fitting = Restricted(std::move(snapshot.tree), snapshot.allowed);
  if (!fitting.has_value()) return;
  // The forest evicted the session's tree, and the new tree is still smaller than the published one. The size of a
  // sampled tree depends on the tokens that were drawn, and nothing may be chosen by them, so a newer one always
  // counts.
  const bool is_smaller = tree_.has_value() && tree_->sampled.empty() && tree_->num_nodes() > fitting->num_nodes();
  if (is_smaller && tree_allowed_ == snapshot.allowed && !snapshot.is_renewed) return;
  if (!tree_.has_value()) needed_no_pass_ = snapshot.needed_no_pass;
  tree_ = std::move(fitting);
  tree_allowed_ = snapshot.allowed;
}

bool DraftMailbox::EndWait(absl::Time asked_at) {
  absl::MutexLock lock(&mutex_);
  if (!unanswered_since_.has_value() || *unanswered_since_ > asked_at) return false;
  return !std::exchange(is_overdue_, true);
}

void DraftMailbox::Refuse() {
  absl::MutexLock lock(&mutex_);
  is_refused_ = true;
  Free(pending_features_);
  num_collected_values_ = 0;
}

void DraftMailbox::Forget() {
  absl::MutexLock lock(&mutex_);
  is_forgotten_ = true;
  tree_.reset();
  Free(pending_features_);
  num_collected_values_ = 0;
}

}  // namespace foretoken::proposer
