// SPDX-License-Identifier: Apache-2.0
// The protocol of one stream without its transport: applies a verifier's events to sessions, and says what there is to
// answer.
//
//   table.Apply(request);
//   if (table.HasNews()) table.TakeNews(response);
//
// Trees are made when they are taken, not when they are asked for: a session owes at most one, at its newest position,
// and all that are owed are proposed in one batch. So a stream that is read slowly costs no work and no queue. A
// session that is not ready owes its tree until it announces news; news of a session that owes nothing makes it owe a
// better tree. A session of which no tree is wanted owes none.
//
// What a verifier gets wrong costs it the session concerned: one whose position leaves a gap, or whose id is opened
// twice, is dropped and reported unknown; one that is too many, too long or holds a token outside int32 is dropped and
// reported refused. Budgets are cut to the limit. Nothing here fails.
//
// Threads: one at a time. SessionSlots from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/telemetry/metrics.h"
#include "foretoken/v1/proposal.pb.h"
#include "proposer_service/config.h"
#include "proposer_service/proposer.h"

namespace foretoken::proposer {

struct ProposerMetrics {
  // The labels tell the proposers apart that one verifier embeds.
  ProposerMetrics(telemetry::Metrics& metrics, const prometheus::Labels& labels);

  prometheus::Gauge& streams;
  prometheus::Gauge& sessions;
  prometheus::Counter& trees;
  prometheus::Counter& nodes;
  prometheus::Counter& refused;
  prometheus::Counter& unknown;
};

// What the streams of one service share.
class SessionSlots {
 public:
  SessionSlots(int32_t max_sessions, prometheus::Gauge& open_sessions)
      : num_free_(max_sessions), open_sessions_(open_sessions) {}

  // False: all are taken.
  bool TryTake();
  void Return(int32_t num_sessions);

 private:
  std::atomic<int32_t> num_free_;
  prometheus::Gauge& open_sessions_;
};

class SessionTable {
 public:
  // What a table needs and does not own; it all outlives the table.
  struct Environment {
    Proposer& proposer;
    SessionSlots& slots;
    ProposerMetrics& metrics;
    const SessionLimits& limits;
    // Brings a session's news, from any thread, to Announce under the table's own lock.
    std::function<void(uint64_t session_id)> announce;
  };

  explicit SessionTable(const Environment& environment) : environment_(environment) {}
  SessionTable(const SessionTable&) = delete;
  SessionTable& operator=(const SessionTable&) = delete;
  ~SessionTable();

  void Apply(const v1::ProposeRequest& request);

  // The session has news. One that is gone has none.
  void Announce(uint64_t session_id);

  // Whether there may be something to take.
  bool HasNews() const { return !owed_.empty() || num_notices() > 0; }
  // Refusals and unknown sessions that wait to be told. They alone can grow with what a verifier sends.
  size_t num_notices() const { return refused_.size() + unknown_.size(); }
  // Overwrites the response. False: it is empty, because no session that owes a tree is ready.
  bool TakeNews(v1::ProposeResponse& response);

 private:
  struct Entry {
    std::unique_ptr<Session> session;
    int32_t node_budget = 0;  // of the tree that was asked for last, and of better ones after it; 0: none is wanted
    bool is_listed = false;   // in owed_
  };
  using Entries = absl::flat_hash_map<uint64_t, Entry>;

  void Open(const v1::OpenSession& open);
  void Advance(const v1::AdvanceSession& advance);
  // False: the tokens were not acceptable, the session is refused and the entry gone.
  bool Append(Entries::iterator entry, const google::protobuf::RepeatedField<uint32_t>& token_ids);
  // The tokens that a message announced are all there.
  void Settle(uint64_t session_id, Entry& entry, Wish wish, uint32_t node_budget);
  void List(uint64_t session_id, Entry& entry);
  // The trees of the listed sessions that are ready; the others are off the list until they announce news.
  void AddTrees(v1::ProposeResponse& response);
  void Drop(Entries::iterator entry);
  void Refuse(uint64_t session_id);
  void ReportUnknown(uint64_t session_id);

  Environment environment_;
  Entries entries_;
  std::vector<uint64_t> owed_;  // sessions that may have a tree to give
  std::vector<uint64_t> refused_;
  std::vector<uint64_t> unknown_;
};

}  // namespace foretoken::proposer
