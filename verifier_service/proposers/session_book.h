// SPDX-License-Identifier: Apache-2.0
// The replica that mirrors each sequence, the tokens that each mirror has received, and the newest tree of each
// sequence. Pure bookkeeping: no network, no threads, no clock. The pool adds those.
//
// The book queues no messages. A session records the number of tokens sent to its replica, and whether the engine wants
// an answer. When a message can be written, the book makes it from the tokens that are not sent yet. So consecutive
// advances merge, the last node budget wins, and a peer that does not read costs no memory. A session that is not asked
// receives nothing, and catches up when it is asked. When the sequence ends, the book sends the missing tokens as a
// farewell, if they are few: some proposers learn from whole outputs.
//
// A drafter's sessions also need features of the target (feature_lane.h). They go out with the tokens of their
// positions or later, as the replica's credits allow.
//
// A mask of the tokens that may come next belongs to one position: the book forgets it when further tokens are
// committed, and sends it only with the request for a tree at its position.
//
// A sequence has one session per allowed proposer. A session stays with its replica. The book places it at the replica
// with the fewest sessions when the session begins, and again when its replica leaves or refuses it. A session that all
// replicas refused waits with backoff.
//
// A replica that reports a session as unknown makes the pool send the context again. The book accepts two such
// reports in a row; the third one counts as a refusal. Only a session that lasts for the backoff's longest delay resets
// this count and the backoff, so a replica cannot reset them with a few trees.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/rpc/proposal_protocol.h"
#include "common/speculation/allowed_tokens.h"
#include "common/speculation/token_tree.h"
#include "foretoken/v1/proposal.pb.h"
#include "verifier_service/proposers/backoff.h"
#include "verifier_service/proposers/feature_lane.h"
#include "verifier_service/proposers/open_questions.h"
#include "verifier_service/proposers/proposer_client.h"
#include "verifier_service/proposers/round_trip.h"

namespace foretoken::verifier {

// One stream to one replica; a replica that comes back has a new id.
using ReplicaId = uint64_t;

struct ReplicaLimits {
  uint32_t max_sessions = 0;        // 0: unknown
  uint64_t max_context_tokens = 0;  // 0: unknown
  bool reads_allowed_tokens = false;
  FeatureSource features = nullptr;  // that its sessions need; null: none
};

// A ProposeResponse whose trees have been checked.
struct CheckedAnswer {
  struct Tree {
    uint64_t session_id = 0;
    absl::StatusOr<speculation::TokenTree> tree;
    absl::Status fits_rejection_sampling = absl::OkStatus();  // an error makes the tree bad under that rule only
  };
  struct Refused {
    uint64_t session_id = 0;
    v1::RefusalReason reason = v1::REFUSAL_REASON_UNSPECIFIED;
    std::string detail = {};
  };
  std::vector<Tree> trees;
  std::vector<Refused> refused;
  std::vector<uint64_t> unknown_session_ids;
  uint64_t feature_credit_bytes = 0;
};

// The result of taking an answer.
struct AnswerVerdict {
  uint64_t num_trees = 0;        // good ones
  uint64_t num_stale_trees = 0;  // the session had ended, or a newer tree is here
  uint64_t num_bad_trees = 0;
  uint64_t num_refused = 0;  // existing sessions that the replica refused
  rpc::RefusalCounts num_refused_by_reason = {};
  std::string first_refusal;                // reason and detail
  uint64_t num_unknown = 0;                 // existing sessions that the replica reported as unknown
  std::vector<absl::Duration> round_trips;  // of the trees that answer a question, late ones too
  int32_t num_bad_in_a_row = 0;             // bad trees in a row from this replica, up to now
  std::string first_fault;                  // the error of the first bad tree
  bool ends_wait = false;                   // nothing more is due from this replica
};

class SessionBook {
 public:
  // Of one proposer since the start.
  struct Totals {
    uint64_t num_questions = 0;  // a session was asked for a tree at a new position
    uint64_t num_late = 0;       // questions without an answer when the session's next one was asked
    uint64_t num_moved = 0;      // sessions opened anew on another stream
  };

  SessionBook(size_t num_proposers, const Backoff& retry, uint64_t seed)
      : num_proposers_(num_proposers), retry_(retry), random_(seed) {}

  // The engine's calls. Unknown sequences are ignored.
  void Open(const SequenceIntroduction& introduction, absl::Time now);
  void Advance(SequenceId sequence_id, std::span<const int32_t> committed, const Ask& ask);
  void Close(SequenceId sequence_id);
  std::vector<Proposal> TakeProposals();

  MissingSessions FindMissing(SequenceId sequence_id) const;

  // The features that sessions lack, as far as their replicas' credits go. A session that is not asked gets none.
  std::vector<FeatureDemand> FeatureDemands() const;
  void GiveFeatures(const FeatureDemand& demand, int32_t begin, std::vector<uint16_t> values);

  // Changes of replicas. Waiting sequences are placed at a new replica. The sequences of a lost replica move.
  void AddReplica(ReplicaId replica_id, uint32_t proposer_idx, const ReplicaLimits& limits, absl::Time now);
  void RemoveReplica(ReplicaId replica_id, absl::Time now);
  AnswerVerdict TakeAnswer(ReplicaId replica_id, CheckedAnswer answer, absl::Time now);

  // Marks as due the answers that this replica was asked for or is about to be asked for.
  void MarkFlushed(ReplicaId replica_id, const ComingStep& forecast, absl::Time now);
  // Returns the next message for a replica, or unset if there is none. A message has at most 64 KiB of context, beside
  // the new tokens of sessions that are up to date, and at most 2 MiB of tokens and masks. The rest follows in the next
  // message.
  std::optional<v1::ProposeRequest> NextRequest(ReplicaId replica_id, absl::Time now);

  // Places again the sequences that every replica refused, if their backoff is over.
  void RetryRefused(absl::Time now);
  std::optional<absl::Time> NextRetry() const;

  // The time until which a wait for answers pays. Unset if no answer is due, or if every replica with a due answer has
  // passed its usual time.
  std::optional<absl::Time> WaitUntil(absl::Time now, absl::Time latest) const;
  // Ends a wait. The engine rarely waits for a replica that missed several waits in a row.
  void EndWait();
  // The time since which answers have been due from a replica without any answer, even a late one. Unset if none is
  // due. Unrequested messages do not count as answers: an empty message, a repeated tree, or a message about sessions
  // that were not asked.
  std::optional<absl::Time> SilentSince(ReplicaId replica_id) const;

  const Totals& totals(uint32_t proposer_idx) const { return totals_[proposer_idx]; }
  // The number of a replica's sessions.
  size_t num_sessions(ReplicaId replica_id) const;
  // The number of sequences that have no session of this proposer, though a replica takes contexts of their length.
  size_t num_waiting(uint32_t proposer_idx) const;

 private:
  // A sequence's relation to one proposer.
  struct Placement {
    std::optional<ReplicaId> replica_id;
    uint64_t session_id = 0;  // at replica_id
    std::optional<ReplicaId> last_replica_id;
    std::vector<ReplicaId> refused_by;
    std::optional<absl::Time> retry_at;
    int num_refusals = 0;            // rounds in a row in which every replica refused
    int num_unknowns = 0;            // unknown reports in a row
    std::optional<Proposal> newest;  // not taken by the engine yet
    uint64_t newest_position = 0;
  };
  struct Sequence {
    v1::OpenSession introduction;  // without session id and tokens
    std::vector<int32_t> token_ids;
    size_t num_opening = 0;  // tokens that the sequence was opened with
    int32_t node_budget = 0;
    std::string mask;                   // of the token behind token_ids, as the protocol's bytes; empty: any token
    uint32_t proposers = 0;             // may serve it, as bits
    uint32_t told = 0;                  // among them, receive its tokens now
    std::vector<Placement> placements;  // [proposers]

    bool IsTold(uint32_t proposer_idx) const { return (told >> proposer_idx & 1) != 0; }
    void SetMask(std::span<const uint32_t> allowed_tokens) {
      mask = speculation::AllowedTokensBytes(allowed_tokens, rpc::kMaxAllowedTokensBytes);
    }
    bool Misses(uint32_t proposer_idx) const {
      return (proposers >> proposer_idx & 1) != 0 && !placements[proposer_idx].replica_id.has_value();
    }
    bool WantsTree(uint32_t proposer_idx) const { return IsTold(proposer_idx) && node_budget > 0; }
  };
  struct Session {
    SequenceId sequence_id = 0;
    bool is_told = false;   // its open has been written
    size_t num_told = 0;    // tokens written
    bool is_dirty = false;  // is listed in Replica::dirty
    bool wants_tree = false;
    std::optional<uint64_t> due_position;  // an answer at this position or later is due
    absl::Time due_since;
    OpenQuestions questions;
    absl::Time placed_at;
    uint64_t answered_position = 0;  // of the newest tree in this session
  };
  struct Replica {
    uint32_t proposer_idx = 0;
    ReplicaLimits limits;
    std::optional<FeatureLane> features;  // set if its sessions need features
    absl::flat_hash_map<uint64_t, Session> sessions;
    uint64_t next_session_id = 1;
    std::vector<uint64_t> dirty;  // sessions with unsent tokens or requests
    std::vector<uint64_t> closes;
    v1::ProposeRequest farewell;    // the missing tokens of sessions that ended
    size_t num_farewell_bytes = 0;  // at most
    ComingStep forecast;
    int32_t num_due = 0;
    absl::Time flushed_at;
    absl::Time silent_since;                              // while an answer is due, without times when none was due
    absl::btree_map<uint64_t, Session> ended_unanswered;  // sessions that ended while an answer was due, oldest first
    absl::Duration past_silence;                          // the silence before the last due answer was cancelled
    RoundTripEstimate round_trip;
    bool has_answered = false;  // with a good tree
    int32_t num_bad_in_a_row = 0;
    int32_t num_missed_waits = 0;
  };

  // Whether the replica is one of this proposer and takes a context of this length, if it has room.
  static bool Fits(const Replica& replica, uint32_t proposer_idx, const Sequence& sequence) {
    const uint64_t limit = replica.limits.max_context_tokens;
    return replica.proposer_idx == proposer_idx && (limit == 0 || sequence.token_ids.size() <= limit);
  }
  void Place(SequenceId sequence_id, Sequence& sequence, uint32_t proposer_idx, absl::Time now);
  // Gives the room of a replica that was full to the sequences that wait, the oldest first. New ones would take it
  // before a backoff ends.
  void PlaceWaiting(ReplicaId replica_id, const Replica& replica, absl::Time now);
  std::optional<ReplicaId> ChooseReplica(const Sequence& sequence, uint32_t proposer_idx) const;
  void Refuse(Replica& replica, ReplicaId replica_id, uint64_t session_id, absl::Time now);
  void Forget(Replica& replica, uint64_t session_id);
  void TakeTree(Replica& replica, CheckedAnswer::Tree& answer, AnswerVerdict& verdict, absl::Time now);
  // Keeps the tree for the engine, unless a newer one came before it.
  void KeepNewest(const Session& session, Proposal proposal, AnswerVerdict& verdict);
  // The mask that goes out with the session's last token. Empty: none.
  absl::string_view MaskToSend(const Replica& replica, const Session& session) const;
  void WriteSession(Replica& replica, uint64_t session_id, size_t num_tokens, v1::ProposeRequest& request);
  void WriteFarewell(Replica& replica, uint64_t session_id, const Session& session);
  static void MarkDirty(Replica& replica, uint64_t session_id, Session& session) {
    if (!std::exchange(session.is_dirty, true)) replica.dirty.push_back(session_id);
  }
  void MarkDue(Replica& replica, Session& session, uint64_t position, absl::Time now);
  static void EndSilence(Replica& replica, uint64_t session_id, std::optional<uint64_t> position, absl::Time now);
  static void ClearDue(Replica& replica, Session& session);
  static bool IsWorthWaiting(const Replica& replica);

  const size_t num_proposers_;
  const Backoff retry_;
  std::mt19937_64 random_;
  absl::flat_hash_map<SequenceId, Sequence> sequences_;
  absl::flat_hash_map<ReplicaId, Replica> replicas_;
  std::vector<std::pair<SequenceId, uint32_t>> fresh_;  // (sequence, proposer) pairs with a new tree
  std::vector<Totals> totals_ = std::vector<Totals>(num_proposers_);
};

}  // namespace foretoken::verifier
