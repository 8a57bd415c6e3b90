// SPDX-License-Identifier: Apache-2.0
// The protocol of one stream without its transport: applies a verifier's events to sessions, and says what there is to
// answer.
//
//   FT_RETURN_IF_ERROR(table.Apply(request));
//   if (table.HasNews()) table.TakeNews(response);
//
// Trees are made when they are taken, not when they are asked for: a session owes at most one, at its newest position,
// and all that are owed and fit into a message are proposed together. So a stream that is read slowly costs no work and
// no queue. A session that is not ready owes its tree until it announces news; news of a session that owes nothing
// makes it owe a better tree. A session owes no tree while the verifier wants none.
//
// What a verifier gets wrong costs it the session concerned: one whose position leaves a gap, or whose id is opened
// twice, is dropped and reported unknown; one that is too many, too long or breaks a rule (event_checks.h) is dropped
// and refused, with the reason. Budgets are cut to the limit. Only what concerns the whole stream ends it.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/telemetry/metrics.h"
#include "foretoken/v1/proposal.pb.h"
#include "proposer_service/proposer/proposer.h"
#include "proposer_service/session_room.h"

namespace foretoken::proposer {

struct ProposerMetrics {
  // The labels tell the proposers apart that one verifier embeds.
  ProposerMetrics(telemetry::Metrics& metrics, const prometheus::Labels& labels);

  SessionRoom::Gauges room() const { return {.sessions = sessions, .tokens = tokens}; }

  prometheus::Gauge& streams;
  prometheus::Gauge& sessions;
  prometheus::Gauge& tokens;
  prometheus::Counter& trees;
  prometheus::Counter& nodes;
  std::map<v1::RefusalReason, prometheus::Counter*> refused;  // by the reasons that this service gives
  prometheus::Counter& unknown;
};

class SessionTable {
 public:
  // What a table needs and does not own; it all outlives the table.
  struct Environment {
    Proposer& proposer;
    SessionRoom& room;
    ProposerMetrics& metrics;
    // Brings a session's news, from any thread, to Announce under the table's own lock.
    std::function<void(uint64_t session_id)> announce;
  };

  explicit SessionTable(const Environment& environment) : environment_(environment), room_(environment.room) {}
  SessionTable(const SessionTable&) = delete;
  SessionTable& operator=(const SessionTable&) = delete;

  // An error ends the stream: FAILED_PRECONDITION its vocabulary is not the proposer's, INVALID_ARGUMENT it is no
  // fingerprint, or not the one that the stream began with. Nothing of the request is applied then.
  absl::Status Apply(const v1::ProposeRequest& request);

  // The session has news. One that is gone has none.
  void Announce(uint64_t session_id);

  // Whether there may be something to take.
  bool HasNews() const { return !owed_.empty() || num_notices() > 0; }
  // Refusals and unknown sessions that wait to be told. They alone can grow with what a verifier sends.
  size_t num_notices() const { return refused_.size() + unknown_.size(); }
  // Overwrites the response, with what fits into one; the rest is news still. False: it is empty, because no session
  // that owes a tree is ready.
  bool TakeNews(v1::ProposeResponse& response);

 private:
  struct Entry {
    std::unique_ptr<Session> session;
    int32_t node_budget = 0;  // of the tree that was asked for last, and of better ones after it; 0: none is wanted
    bool is_listed = false;   // in owed_
  };
  using Entries = absl::flat_hash_map<uint64_t, Entry>;
  struct RefusedId {
    uint64_t session_id = 0;
    Refusal refusal;
  };

  absl::Status SetVocabulary(const std::string& fingerprint);
  void Open(const v1::OpenSession& open);
  void Advance(const v1::AdvanceSession& advance);
  // False: the tokens were not acceptable, the session is refused and the entry gone.
  bool Append(Entries::iterator entry, const google::protobuf::RepeatedField<uint32_t>& token_ids);
  // The tokens that a message announced are all there.
  void Settle(uint64_t session_id, Entry& entry, TreeRequest tree_request, uint32_t node_budget);
  void List(uint64_t session_id, Entry& entry);
  // The trees of the listed sessions that are ready, as many as fit; the others are off the list until they announce
  // news.
  void AddTrees(v1::ProposeResponse& response);
  // Returns their bytes.
  size_t AddTrees(std::span<const uint64_t> session_ids, v1::ProposeResponse& response);
  void AddNotices(v1::ProposeResponse& response);
  void Drop(Entries::iterator entry);
  void Refuse(uint64_t session_id, Refusal refusal);
  void ReportUnknown(uint64_t session_id);

  Environment environment_;
  StreamRoom room_;
  std::string vocabulary_;  // of the stream; empty: not told yet
  Entries entries_;
  std::vector<uint64_t> owed_;  // sessions that may have a tree to give
  std::vector<RefusedId> refused_;
  std::vector<uint64_t> unknown_;
};

}  // namespace foretoken::proposer
