// SPDX-License-Identifier: Apache-2.0
// One sequence at the draft proposer, seen from its stream, and the mailbox in which stream and growth thread leave
// things for each other. A mailbox outlives its session until the growth thread has cleared up behind it.
//
// The newest snapshot is kept at the session's own position: what is appended re-roots it here and now. So an advance
// onto a path that the tree has grown already is answered without asking anyone, unless the tree is so thin there that
// it is held until it has grown (answer_timing.h). The growth thread hears of appended tokens together with the
// tree_request that follows them, so it does nothing for a session that sleeps.
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
  // What a tree_request meets.
  struct Situation {
    absl::Time now;
    ExpectedPass next_pass;
  };

  // `wake` tells the growth thread of a mailbox with something inside.
  DraftMailbox(SessionIntroduction introduction, std::function<void(std::shared_ptr<DraftMailbox>)> wake)
      : introduction_(std::move(introduction)), wake_(std::move(wake)) {}

  const SessionIntroduction& introduction() const { return introduction_; }

  // The stream's side.
  void Append(std::span<const int32_t> token_ids);
  void Want(const TreeRequest& tree_request, const Situation& situation, const std::shared_ptr<DraftMailbox>& self);
  void Close(const std::shared_ptr<DraftMailbox>& self);
  uint64_t position() const;
  Readiness readiness() const;

  struct Answer {
    speculation::TokenTree tree;
    bool is_first = false;        // since it was asked for
    bool needed_no_pass = false;  // it had been grown by then
    absl::Time asked_at;
  };
  Answer Take(int32_t node_budget);

  // The growth thread's side.
  struct Mail {
    std::vector<int32_t> token_ids;
    TreeRequest tree_request;
    absl::Time asked_at;
    bool is_owed = false;  // the tree_request waits for a snapshot
    bool is_closed = false;
  };
  Mail Collect();
  struct Snapshot {
    speculation::TokenTree tree;  // at the position that was collected last; tokens appended since re-root it
    bool needed_no_pass = false;  // since that position was reached
  };
  void Publish(Snapshot snapshot);
  void Refuse();
  void Announce() const {
    if (introduction_.announce) introduction_.announce();
  }

 private:
  void Wake(const std::shared_ptr<DraftMailbox>& self);

  const SessionIntroduction introduction_;
  const std::function<void(std::shared_ptr<DraftMailbox>)> wake_;

  mutable absl::Mutex mutex_;
  std::vector<int32_t> pending_ ABSL_GUARDED_BY(mutex_);  // appended, not collected
  uint64_t position_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<speculation::TokenTree> tree_ ABSL_GUARDED_BY(mutex_);  // at position_
  bool is_held_ ABSL_GUARDED_BY(mutex_) = false;                        // the tree waits for the next snapshot
  bool needed_no_pass_ ABSL_GUARDED_BY(mutex_) = false;
  TreeRequest tree_request_ ABSL_GUARDED_BY(mutex_);
  bool is_answered_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time asked_at_ ABSL_GUARDED_BY(mutex_);
  bool is_awake_ ABSL_GUARDED_BY(mutex_) = false;  // the growth thread has been told
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_refused_ ABSL_GUARDED_BY(mutex_) = false;
};

class DraftSession : public Session {
 public:
  // `situation` outlives the session.
  DraftSession(std::shared_ptr<DraftMailbox> mailbox, const std::function<DraftMailbox::Situation()>& situation)
      : mailbox_(std::move(mailbox)), situation_(situation) {}
  ~DraftSession() override { mailbox_->Close(mailbox_); }

  void Append(std::span<const int32_t> token_ids) override { mailbox_->Append(token_ids); }
  void Want(const TreeRequest& tree_request) override { mailbox_->Want(tree_request, situation_(), mailbox_); }
  uint64_t position() const override { return mailbox_->position(); }
  Readiness readiness() const override { return mailbox_->readiness(); }
  DraftMailbox& mailbox() const { return *mailbox_; }

 private:
  std::shared_ptr<DraftMailbox> mailbox_;  // shared with the growth thread
  const std::function<DraftMailbox::Situation()>& situation_;
};

}  // namespace foretoken::proposer
