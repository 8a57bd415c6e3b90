// SPDX-License-Identifier: Apache-2.0
// Which replica mirrors which sequence, what each mirror has been told, and the newest tree of each. Pure bookkeeping:
// no network, no threads, no clock; the pool adds those.
//
// Nothing is queued. A session remembers how many tokens its replica was told and whether an answer is wanted, and a
// message is made of the difference at the moment it can be written. So consecutive advances merge, the last node
// budget wins, and a peer that does not read costs no memory. A session that is not asked is told nothing, and catches
// up when it is. What it has not been told when the sequence ends is told with the farewell, as long as that is short:
// some proposers learn from whole outputs.
//
// A sequence has one session per proposer that it allows. A session stays with its replica; it goes to the replica with
// the fewest sessions when it begins, and when its replica leaves or refuses it. Refused by all, it waits with backoff.
//
// A replica can make the pool send a context again by saying that it does not know the session. It is believed three
// times; then that is a refusal. Only a session that lasts for the backoff's longest time makes the count and the
// backoff start afresh, so trees sent in between buy nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/proposal_protocol.h"
#include "common/speculation/token_tree.h"
#include "foretoken/v1/proposal.pb.h"
#include "verifier_service/proposers/backoff.h"
#include "verifier_service/proposers/proposer_client.h"
#include "verifier_service/proposers/round_trip.h"

namespace foretoken::verifier {

// One stream to one replica; a replica that comes back has a new id.
using ReplicaId = uint64_t;

struct ReplicaLimits {
  uint32_t max_sessions = 0;        // 0: not told
  uint64_t max_context_tokens = 0;  // 0: not told
};

// A ProposeResponse whose trees have been checked.
struct CheckedAnswer {
  struct Tree {
    uint64_t session_id = 0;
    absl::StatusOr<speculation::TokenTree> tree;
    absl::Status fits_rejection_sampling = absl::OkStatus();  // else the tree is bad under that rule
  };
  struct Refused {
    uint64_t session_id = 0;
    v1::RefusalReason reason = v1::REFUSAL_REASON_UNSPECIFIED;
    std::string detail = {};
  };
  std::vector<Tree> trees;
  std::vector<Refused> refused;
  std::vector<uint64_t> unknown_session_ids;
};

// What became of an answer.
struct AnswerVerdict {
  uint64_t num_trees = 0;        // good ones
  uint64_t num_stale_trees = 0;  // of sessions that ended, or older than one we have
  uint64_t num_bad_trees = 0;
  uint64_t num_refused = 0;  // sessions that there were, and that are refused
  rpc::RefusalCounts num_refused_by_reason = {};
  std::string first_refusal;                // reason and detail
  uint64_t num_unknown = 0;                 // likewise, and that are unknown
  std::vector<absl::Duration> round_trips;  // of the trees that were due
  int32_t num_bad_in_a_row = 0;             // of this replica, up to now
  std::string first_fault;                  // of the first bad tree
  bool ends_wait = false;                   // nothing more is due from this replica
};

class SessionBook {
 public:
  SessionBook(size_t num_proposers, const Backoff& retry, uint64_t seed)
      : num_proposers_(num_proposers), retry_(retry), random_(seed) {}

  // What the engine says. Unknown sequences are ignored.
  void Open(const SequenceIntroduction& introduction, absl::Time now);
  void Advance(SequenceId sequence_id, std::span<const int32_t> committed, const Ask& ask);
  void Close(SequenceId sequence_id);
  std::vector<Proposal> TakeProposals();

  // What happens to replicas. Waiting sequences are placed at a new one; those of a lost one move.
  void AddReplica(ReplicaId replica_id, uint32_t proposer_idx, const ReplicaLimits& limits, absl::Time now);
  void RemoveReplica(ReplicaId replica_id, absl::Time now);
  AnswerVerdict TakeAnswer(ReplicaId replica_id, CheckedAnswer answer, absl::Time now);

  // From now on the answers that this replica was or is about to be asked for are due.
  void MarkFlushed(ReplicaId replica_id, const ComingStep& forecast, absl::Time now);
  // The next message for a replica, or unset where there is nothing to say. At most 64 KiB of context beside the news
  // of sessions that are up to date; what is left follows in the next message.
  std::optional<v1::ProposeRequest> NextRequest(ReplicaId replica_id, absl::Time now);

  // Sequences that every replica refused try again when their time has come.
  void RetryRefused(absl::Time now);
  std::optional<absl::Time> NextRetry() const;

  // Until when a wait for answers pays: unset where none is due or every replica that owes one is past its usual time.
  std::optional<absl::Time> WaitUntil(absl::Time now, absl::Time latest) const;
  // Ends a wait: replicas that keep missing the wait are then waited for but seldom.
  void EndWait();
  // Since when answers have been due from a replica and none came, not even a late one; unset where none is due. What
  // nobody asked for is no answer: an empty message, a tree that was there before, news of sessions that were not
  // asked.
  std::optional<absl::Time> SilentSince(ReplicaId replica_id) const;

  uint64_t num_moved(uint32_t proposer_idx) const { return num_moved_[proposer_idx]; }
  // How many sessions a replica has.
  size_t num_sessions(ReplicaId replica_id) const;

 private:
  // A sequence's relation to one proposer.
  struct Placement {
    std::optional<ReplicaId> replica_id;
    uint64_t session_id = 0;  // at replica_id
    std::optional<ReplicaId> last_replica_id;
    std::vector<ReplicaId> refused_by;
    std::optional<absl::Time> retry_at;
    int num_refusals = 0;                          // rounds in a row that ended at no replica
    int num_unknowns = 0;                          // in a row
    std::optional<speculation::TokenTree> newest;  // not taken yet
    uint64_t newest_position = 0;
  };
  struct Sequence {
    v1::OpenSession introduction;  // all but session and tokens
    std::vector<int32_t> token_ids;
    size_t num_opening = 0;  // of them, those it was opened with
    int32_t node_budget = 0;
    uint32_t proposers = 0;             // that may serve it
    uint32_t told = 0;                  // and that are told its news now
    std::vector<Placement> placements;  // [proposers]

    bool IsTold(uint32_t proposer_idx) const { return (told >> proposer_idx & 1) != 0; }
    bool WantsTree(uint32_t proposer_idx) const { return IsTold(proposer_idx) && node_budget > 0; }
  };
  struct Session {
    SequenceId sequence_id = 0;
    bool is_told = false;   // its open has been written
    size_t num_told = 0;    // tokens written
    bool is_dirty = false;  // stands in Replica::dirty
    bool wants_tree = false;
    std::optional<uint64_t> due_position;  // an answer at this position or later is due
    absl::Time due_since;
    absl::Time placed_at;
    uint64_t answered_position = 0;  // of the newest tree, here
  };
  struct Replica {
    uint32_t proposer_idx = 0;
    ReplicaLimits limits;
    absl::flat_hash_map<uint64_t, Session> sessions;
    uint64_t next_session_id = 1;
    std::vector<uint64_t> dirty;  // sessions with news
    std::vector<uint64_t> closes;
    v1::ProposeRequest farewell;  // what sessions that end have not been told
    size_t num_farewell_tokens = 0;
    ComingStep forecast;
    int32_t num_due = 0;
    absl::Time flushed_at;
    absl::Time silent_since;                                  // while an answer is due; time when none was is not in it
    absl::flat_hash_map<uint64_t, Session> ended_unanswered;  // sessions that ended while an answer was due
    absl::Duration past_silence;  // up to when the last answer that was due was no longer wanted
    RoundTripEstimate round_trip;
    int32_t num_bad_in_a_row = 0;
    int32_t num_missed_waits = 0;
  };

  void Place(SequenceId sequence_id, Sequence& sequence, uint32_t proposer_idx, absl::Time now);
  std::optional<ReplicaId> ChooseReplica(const Sequence& sequence, uint32_t proposer_idx) const;
  void Refuse(Replica& replica, ReplicaId replica_id, uint64_t session_id, absl::Time now);
  void Forget(Replica& replica, uint64_t session_id);
  void TakeTree(Replica& replica, CheckedAnswer::Tree& answer, AnswerVerdict& verdict, absl::Time now);
  void WriteSession(Replica& replica, uint64_t session_id, size_t num_tokens, v1::ProposeRequest& request);
  void WriteFarewell(Replica& replica, uint64_t session_id, const Session& session);
  static void MarkDirty(Replica& replica, uint64_t session_id, Session& session);
  static void MarkDue(Replica& replica, Session& session, uint64_t position, absl::Time now);
  static void EndSilence(Replica& replica, uint64_t session_id, std::optional<uint64_t> position, absl::Time now);
  static void ClearDue(Replica& replica, Session& session);
  static bool IsWorthWaiting(const Replica& replica);

  const size_t num_proposers_;
  const Backoff retry_;
  std::mt19937_64 random_;
  absl::flat_hash_map<SequenceId, Sequence> sequences_;
  absl::flat_hash_map<ReplicaId, Replica> replicas_;
  std::vector<std::pair<SequenceId, uint32_t>> fresh_;  // (sequence, proposer) with a newest tree
  std::vector<uint64_t> num_moved_ = std::vector<uint64_t>(num_proposers_);
};

}  // namespace foretoken::verifier
