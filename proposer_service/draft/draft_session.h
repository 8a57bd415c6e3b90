// SPDX-License-Identifier: Apache-2.0
// One sequence at the draft proposer, as its stream sees it, and its mailbox. The stream and the growth thread exchange
// tokens, requests and trees through the mailbox. A mailbox outlives its session until the growth thread has taken the
// session out of the forest.
//
// The mailbox keeps the newest snapshot of the tree at the session's own position: Append re-roots it in the stream's
// thread. So an advance along a path of the snapshot gets its answer without the growth thread. The mailbox holds such
// an answer back while a small tree is worth another pass (answer_timing.h). The growth thread gets appended tokens
// and features together with the tree request that follows them, so it does no work for an idle session. If the growth
// thread has no tree for too long, it lets the session answer with an empty one.
//
// A snapshot may be older than the restriction to some tokens. The mailbox then keeps the guesses below allowed tokens,
// until the growth thread has chosen the root's children again. It keeps no sampled children: to choose among them
// would bias the sample.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proposer_service/draft/answer_timing.h"
#include "proposer_service/proposer/proposer.h"

namespace foretoken::proposer {

class DraftMailbox {
 public:
  // The state of the growth thread when a tree request comes.
  struct Situation {
    absl::Time now;
    ExpectedPass next_pass;
  };

  // `enter_inbox` puts a changed mailbox into the growth thread's inbox.
  DraftMailbox(SessionIntroduction introduction, std::function<void(std::shared_ptr<DraftMailbox>)> enter_inbox)
      : introduction_(std::move(introduction)), enter_inbox_(std::move(enter_inbox)) {}

  const SessionIntroduction& introduction() const { return introduction_; }

  // The stream's side.
  void Append(std::span<const int32_t> token_ids);
  // No request for a tree may follow, so the growth thread is told at once.
  void AppendFeatures(uint64_t first_position, std::span<const uint16_t> values,
                      const std::shared_ptr<DraftMailbox>& self);
  int64_t num_unused_feature_values() const;
  void Want(const TreeRequest& tree_request, const Situation& situation, const std::shared_ptr<DraftMailbox>& self);
  void Close(const std::shared_ptr<DraftMailbox>& self);
  uint64_t position() const;
  Readiness readiness() const;
  bool has_tree() const;

  struct Answer {
    speculation::TokenTree tree;
    bool is_first = false;        // the first answer to the tree request
    bool needed_no_pass = false;  // the tree existed when the tree request came
    absl::Time asked_at;
  };
  Answer Take(int32_t node_budget);

  // The growth thread's side.
  // The changes since the last Collect.
  struct Update {
    std::vector<int32_t> token_ids;
    uint64_t first_feature_position = 0;
    std::vector<uint16_t> features;  // [n, W] bf16
    TreeRequest tree_request;
    absl::Time asked_at;
    bool is_owed = false;  // the session has no tree to send, or holds it back, until the next snapshot
    bool is_closed = false;
  };
  Update Collect();
  struct Snapshot {
    speculation::TokenTree tree;  // at the position of the last Collect; Publish re-roots it onto later tokens
    bool needed_no_pass = false;  // the root was expanded when its position was reached
    speculation::AllowedTokens allowed = {};  // the tokens that the root's children were chosen among
    bool is_renewed = false;  // the root's children were chosen again, so a larger tree before it is worse
  };
  void Publish(Snapshot snapshot);
  // If a request of `asked_at` or before has no answer yet, lets the session answer now, with the tree that it has or
  // with an empty one. Returns false if no request is so old, or if the session may answer already.
  bool EndWait(absl::Time asked_at);
  void Refuse();
  void Forget();
  // Of the features that Collect has returned, this number of values is not used yet.
  void SetUnused(int64_t num_collected_values);
  void Announce() const {
    if (introduction_.announce) introduction_.announce();
  }

 private:
  void EnterInbox(const std::shared_ptr<DraftMailbox>& self);
  // Re-roots a tree onto tokens whose features, if the model reads them, have not been used yet.
  speculation::TokenTree ReRooted(const speculation::TokenTree& tree, std::span<const int32_t> token_ids) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the part of the tree that fits the tree request. Unset: nothing is left.
  std::optional<speculation::TokenTree> Restricted(speculation::TokenTree tree,
                                                   const speculation::AllowedTokens& allowed) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SessionIntroduction introduction_;
  const std::function<void(std::shared_ptr<DraftMailbox>)> enter_inbox_;

  mutable absl::Mutex mutex_;
  std::vector<int32_t> pending_ ABSL_GUARDED_BY(mutex_);  // appended and not collected
  uint64_t position_ ABSL_GUARDED_BY(mutex_) = 0;
  bool reads_features_ ABSL_GUARDED_BY(mutex_) = false;  // some have come
  std::vector<uint16_t> pending_features_ ABSL_GUARDED_BY(mutex_);
  uint64_t first_feature_position_ ABSL_GUARDED_BY(mutex_) = 0;         // of pending_features_
  int64_t num_collected_values_ ABSL_GUARDED_BY(mutex_) = 0;            // collected and not used
  std::optional<speculation::TokenTree> tree_ ABSL_GUARDED_BY(mutex_);  // at position_
  speculation::AllowedTokens tree_allowed_ ABSL_GUARDED_BY(mutex_);     // as Snapshot::allowed
  bool is_held_ ABSL_GUARDED_BY(mutex_) = false;                        // the tree waits for the next snapshot
  bool needed_no_pass_ ABSL_GUARDED_BY(mutex_) = false;
  TreeRequest tree_request_ ABSL_GUARDED_BY(mutex_);
  bool is_answered_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time asked_at_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Time> unanswered_since_ ABSL_GUARDED_BY(mutex_);  // the first request since the last answer
  bool is_overdue_ ABSL_GUARDED_BY(mutex_) = false;                     // the next answer goes out with what there is
  bool is_in_inbox_ ABSL_GUARDED_BY(mutex_) = false;                    // the growth thread will collect
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_refused_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_forgotten_ ABSL_GUARDED_BY(mutex_) = false;
};

class DraftSession : public Session {
 public:
  // `situation` outlives the session.
  DraftSession(std::shared_ptr<DraftMailbox> mailbox, const std::function<DraftMailbox::Situation()>& situation)
      : mailbox_(std::move(mailbox)), situation_(situation) {}
  ~DraftSession() override { mailbox_->Close(mailbox_); }

  void Append(std::span<const int32_t> token_ids) override { mailbox_->Append(token_ids); }
  void AppendFeatures(uint64_t first_position, std::span<const uint16_t> values) override {
    mailbox_->AppendFeatures(first_position, values, mailbox_);
  }
  int64_t num_unused_feature_values() const override { return mailbox_->num_unused_feature_values(); }
  void Want(const TreeRequest& tree_request) override { mailbox_->Want(tree_request, situation_(), mailbox_); }
  uint64_t position() const override { return mailbox_->position(); }
  Readiness readiness() const override { return mailbox_->readiness(); }
  bool has_grown_tree() const override { return mailbox_->has_tree(); }
  DraftMailbox& mailbox() const { return *mailbox_; }

 private:
  std::shared_ptr<DraftMailbox> mailbox_;  // shared with the growth thread
  const std::function<DraftMailbox::Situation()>& situation_;
};

}  // namespace foretoken::proposer
