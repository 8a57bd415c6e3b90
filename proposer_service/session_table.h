// SPDX-License-Identifier: Apache-2.0
// The protocol of one stream without its transport. The table applies a verifier's events to sessions and makes the
// responses.
//
//   FT_RETURN_IF_ERROR(table.Apply(request));
//   if (table.HasResponse()) table.TakeResponse(response);
//
// The table makes trees when a response is taken, not when the verifier asks for them. A session owes at most one tree,
// at its newest position, and the proposer makes all owed trees of a response together. So a slow reader costs no work
// and no queue. A session that is not ready owes its tree until it announces that it is. A session that owes no tree
// owes a better one after an announcement. A session owes no tree while the verifier wants none.
//
// Features are limited by credits: the table grants so many bytes that what its sessions have not used yet stays within
// SessionLimits::max_stream_feature_bytes.
//
// A verifier's mistake costs it one session. The table drops a session and reports it as unknown if a position leaves a
// gap or an id is opened twice. It drops a session and reports it as refused, with the reason, if there are too many
// sessions or tokens or the session breaks a rule (event_checks.h). The table cuts node budgets to the limit. Only a
// mistake about the stream itself ends the stream.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/telemetry/metrics.h"
#include "foretoken/v1/proposal.pb.h"
#include "proposer_service/proposer/proposer.h"
#include "proposer_service/session_room.h"
#include "proposer_service/session_trace.h"

namespace foretoken::proposer {

struct ProposerMetrics {
  // The labels distinguish the proposers that one verifier embeds.
  ProposerMetrics(telemetry::Metrics& metrics, const prometheus::Labels& labels);

  SessionRoom::Gauges room() const { return {.sessions = sessions, .tokens = tokens}; }

  prometheus::Gauge& streams;
  std::map<absl::StatusCode, prometheus::Counter*> stream_errors;
  prometheus::Gauge& sessions;
  prometheus::Gauge& tokens;
  prometheus::Counter& trees;
  prometheus::Counter& nodes;
  std::map<v1::RefusalReason, prometheus::Counter*> refused;  // by the reasons that this service gives
  prometheus::Counter& unknown;
};

class SessionTable {
 public:
  // The objects that a table needs and does not own. They outlive the table.
  struct Environment {
    Proposer& proposer;
    SessionRoom& room;
    ProposerMetrics& metrics;
    const TraceOptions* trace = nullptr;  // null: no session is traced
    tracing::RpcCall call = {};           // the stream, for its trace
    // Carries a session's announcement, from any thread, to Announce under the table's own lock.
    std::function<void(uint64_t session_id)> announce;
  };

  explicit SessionTable(const Environment& environment);
  SessionTable(const SessionTable&) = delete;
  SessionTable& operator=(const SessionTable&) = delete;

  // Applies a request whole or, on an error, not at all. An error ends the stream. FAILED_PRECONDITION: the proposer
  // has another vocabulary. INVALID_ARGUMENT: the vocabulary is no fingerprint, or not the stream's first one.
  // RESOURCE_EXHAUSTED: more features than the verifier has credit for; or, when all has been applied, more notices
  // than it may leave unread.
  absl::Status Apply(const v1::ProposeRequest& request);

  // The session has become ready, is refused, or has a better tree. The table ignores sessions that it does not have.
  void Announce(uint64_t session_id);

  // Whether TakeResponse may have something to send.
  bool HasResponse() const { return !owed_.empty() || num_notices() > 0 || CreditToGrant() > 0; }
  // Refusals and unknown sessions that wait to be sent. Only these can grow with the requests of a verifier.
  size_t num_notices() const { return refused_.size() + unknown_.size(); }
  // Overwrites the response with as much as fits into one message. HasResponse stays true if something is left. False:
  // the response is empty, because no session that owes a tree is ready.
  bool TakeResponse(v1::ProposeResponse& response);

  // The status that ends the stream, for its trace and the metrics.
  void SetEnd(const absl::Status& status);

 private:
  struct Entry {
    std::unique_ptr<Session> session;
    int32_t node_budget = 0;                        // of the last tree request; 0: the verifier wants no tree
    bool is_listed = false;                         // in owed_
    int64_t num_mask_tokens = 0;                    // that the mask of the last tree request takes up in room_
    std::unique_ptr<SessionTrace> trace = nullptr;  // null: the request is not traced
    std::optional<uint64_t> features_end;           // the position after the last feature; unset: none came yet
    std::optional<TreeRequest> requested;           // by the message that is being applied
    bool has_requested = false;                     // the session has got a request
  };
  using Entries = absl::flat_hash_map<uint64_t, Entry>;
  struct RefusedId {
    uint64_t session_id = 0;
    Refusal refusal;
  };

  absl::Status SetVocabulary(const std::string& fingerprint);
  void Open(const v1::OpenSession& open);
  void Advance(const v1::AdvanceSession& advance);
  // False: the table has refused and dropped the session because of these tokens.
  bool Append(Entries::iterator entry, const google::protobuf::RepeatedField<uint32_t>& token_ids);
  // Takes the mask of the session's next tree request in place of the last one. It is only a hint, so a mask without
  // room becomes the mask that allows any token.
  speculation::AllowedTokens TakeMask(Entry& entry, const std::string& bytes);
  // Keeps a request until the whole message has arrived, and then passes the last one of each session on: a drafter's
  // features are behind the tokens, and a message can hold a quarter of a million requests of one session. Only a
  // session's first request goes before the tokens behind it, because it marks the end of the opening context.
  void Request(uint64_t session_id, Entry& entry, TreeRequest tree_request, uint32_t node_budget);
  void PassRequest(uint64_t session_id, Entry& entry);
  void PassRequests();
  absl::Status CheckCredit(const v1::ProposeRequest& request) const;
  void AppendFeatures(const v1::FeatureChunk& chunk);
  // The bytes of features that the verifier may send beyond its credit; 0 while they are too few to be worth a message.
  uint64_t CreditToGrant() const;
  void List(uint64_t session_id, Entry& entry);
  // Adds the trees of the listed sessions that are ready, as many as fit. The other listed sessions leave the list
  // until they announce.
  void AddTrees(v1::ProposeResponse& response);
  // Adds the trees of these sessions and returns their bytes.
  size_t AddTrees(std::span<const uint64_t> session_ids, v1::ProposeResponse& response);
  void AddNotices(v1::ProposeResponse& response);
  void Drop(Entries::iterator entry);
  void Refuse(uint64_t session_id, Refusal refusal);
  void ReportUnknown(uint64_t session_id);

  Environment environment_;
  StreamRoom room_;
  const std::unique_ptr<StreamTrace> trace_;  // null: no session is traced
  std::string vocabulary_;                    // the stream's fingerprint; empty: not told yet
  Entries entries_;
  std::vector<uint64_t> requested_;  // the sessions with a request in Entry::requested
  uint64_t num_granted_bytes_ = 0;   // of features, in all
  uint64_t num_feature_bytes_ = 0;   // received, in all
  std::vector<uint64_t> owed_;       // sessions that may have a tree to send
  std::vector<RefusedId> refused_;
  std::vector<uint64_t> unknown_;
};

}  // namespace foretoken::proposer
