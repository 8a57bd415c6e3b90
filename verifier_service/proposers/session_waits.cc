// SPDX-License-Identifier: Apache-2.0
// The part of SessionBook that knows which answers are due, how long waits for them pay, and how long a replica has
// been silent.
#include <algorithm>
#include <utility>

#include "verifier_service/proposers/session_book.h"

namespace foretoken::verifier {
namespace {

// After this many failed waits in a row the engine waits only in every 16th step.
constexpr int32_t kMaxMissedWaits = 4;
constexpr int32_t kTryWaitEvery = 16;
// The engine waits for this multiple of the 90th percentile of one answer: a step needs the last of its answers.
constexpr double kPatience = 1.5;

}  // namespace

void SessionBook::MarkDue(Replica& replica, Session& session, uint64_t position, absl::Time now) {
  if (session.due_position == position) return;
  Totals& totals = totals_[replica.proposer_idx];
  ++totals.num_questions;
  if (!session.due_position.has_value()) {
    if (replica.num_due++ == 0) replica.silent_since = now - replica.past_silence;
  } else {
    ++totals.num_late;
    const absl::Duration late = now - session.due_since;
    // The unanswered question would have taken at least this long.
    if (late > replica.round_trip.p90()) replica.round_trip.Add(late);
  }
  session.due_position = position;
  session.due_since = now;
  session.questions.Add(position, now);
}

// Ends the replica's silence if the session was asked, even if the answer is late. An ended session's answers count
// too, as long as their positions increase. `position` is unset if the answer is not a good tree.
void SessionBook::EndSilence(Replica& replica, uint64_t session_id, std::optional<uint64_t> position, absl::Time now) {
  const auto running = replica.sessions.find(session_id);
  const auto ended = replica.ended_unanswered.find(session_id);
  const bool has_ended = ended != replica.ended_unanswered.end();
  if (running == replica.sessions.end() && !has_ended) return;
  Session& session = has_ended ? ended->second : running->second;
  const bool is_news = !position.has_value() || *position > session.answered_position;
  if (!session.due_position.has_value() || !is_news) return;
  replica.silent_since = now;
  replica.past_silence = absl::ZeroDuration();
  if (!has_ended) return;  // the caller checks the answer of a running session
  session.answered_position = position.value_or(*session.due_position);
  if (session.answered_position >= *session.due_position) replica.ended_unanswered.erase(ended);
}

void SessionBook::ClearDue(Replica& replica, Session& session) {
  if (!session.due_position.has_value()) return;
  session.due_position.reset();
  // The end of a session does not end a silence. Otherwise short sequences would keep a replica that never answers.
  if (--replica.num_due == 0) {
    replica.past_silence = std::max(replica.flushed_at - replica.silent_since, absl::ZeroDuration());
  }
}

bool SessionBook::IsWorthWaiting(const Replica& replica) {
  return replica.num_missed_waits < kMaxMissedWaits || replica.num_missed_waits % kTryWaitEvery == 0;
}

std::optional<absl::Time> SessionBook::WaitUntil(absl::Time now, absl::Time latest) const {
  std::optional<absl::Time> until;
  for (const auto& [replica_id, replica] : replicas_) {
    if (replica.num_due == 0 || !IsWorthWaiting(replica)) continue;
    const std::optional<absl::Duration> p90 = replica.round_trip.p90();
    const absl::Time usual = p90.has_value() ? replica.flushed_at + *p90 * kPatience : latest;
    const absl::Time end = std::min(usual, latest);
    if (end > now && (!until.has_value() || end > *until)) until = end;
  }
  return until;
}

void SessionBook::EndWait() {
  for (auto& [replica_id, replica] : replicas_) {
    replica.num_missed_waits = replica.num_due == 0 ? 0 : replica.num_missed_waits + 1;
  }
}

std::optional<absl::Time> SessionBook::SilentSince(ReplicaId replica_id) const {
  const auto it = replicas_.find(replica_id);
  if (it == replicas_.end() || it->second.num_due == 0) return std::nullopt;
  return it->second.silent_since;
}

}  // namespace foretoken::verifier
