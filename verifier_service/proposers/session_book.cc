// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/proposers/session_book.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/error_text.h"
#include "common/rpc/proposal_protocol.h"
#include "kernels/check.h"

namespace foretoken::verifier {
namespace {

// A replica that reports a new session as unknown this often in a row has refused it.
constexpr int kMaxUnknownsInARow = 3;
// The most ended sessions with a due answer that the book remembers of a replica. A draft model never answers some.
constexpr size_t kMaxEndedUnanswered = 1024;

v1::VerificationRule ToProto(kernels::VerificationRule rule) {
  switch (rule) {
    case kernels::VerificationRule::kKeyedDraw:
      return v1::VERIFICATION_RULE_KEYED_DRAW;
    case kernels::VerificationRule::kRejectionSampling:
      return v1::VERIFICATION_RULE_REJECTION_SAMPLING;
  }
  return v1::VERIFICATION_RULE_UNSPECIFIED;
}

void Count(const CheckedAnswer::Refused& refused, AnswerVerdict& verdict) {
  const v1::RefusalReason reason =
      v1::RefusalReason_IsValid(refused.reason) ? refused.reason : v1::REFUSAL_REASON_UNSPECIFIED;
  ++verdict.num_refused;
  ++verdict.num_refused_by_reason[static_cast<size_t>(reason)];
  if (verdict.first_refusal.empty()) {
    verdict.first_refusal =
        absl::StrCat(rpc::RefusalName(reason), ": ", base::Quoted(refused.detail, rpc::kMaxRefusalDetailBytes));
  }
}

}  // namespace

void SessionBook::Open(const SequenceIntroduction& introduction, absl::Time now) {
  const auto [it, is_new] = sequences_.try_emplace(introduction.sequence_id);
  FT_CHECK(is_new);
  Sequence& sequence = it->second;
  sequence.token_ids.assign(introduction.token_ids.begin(), introduction.token_ids.end());
  sequence.num_opening = sequence.token_ids.size();
  sequence.SetMask(introduction.allowed_tokens);
  sequence.proposers = introduction.proposers & static_cast<uint32_t>((uint64_t{1} << num_proposers_) - 1);
  sequence.told = introduction.told_proposers;
  sequence.placements.resize(num_proposers_);
  sequence.introduction.set_rule(ToProto(introduction.rule));
  sequence.introduction.set_seed(introduction.seed);
  sequence.introduction.set_sample_index(introduction.sample_index);
  v1::SamplingFilters& filters = *sequence.introduction.mutable_filters();
  filters.set_temperature(introduction.temperature);
  if (introduction.top_k > 0) filters.set_top_k(static_cast<uint32_t>(introduction.top_k));
  if (introduction.top_p < 1) filters.set_top_p(introduction.top_p);
  if (introduction.min_p > 0) filters.set_min_p(introduction.min_p);
  sequence.introduction.set_tenant(introduction.tenant);
  sequence.introduction.set_traceparent(introduction.traceparent);
  sequence.introduction.set_tracestate(introduction.tracestate);
  for (uint32_t bits = sequence.proposers; bits != 0; bits &= bits - 1) {
    Place(introduction.sequence_id, sequence, static_cast<uint32_t>(std::countr_zero(bits)), now);
  }
}

void SessionBook::Advance(SequenceId sequence_id, std::span<const int32_t> committed, const Ask& ask) {
  const auto it = sequences_.find(sequence_id);
  if (it == sequences_.end()) return;
  Sequence& sequence = it->second;
  sequence.token_ids.insert(sequence.token_ids.end(), committed.begin(), committed.end());
  if (!committed.empty() || !ask.allowed_tokens.empty()) sequence.SetMask(ask.allowed_tokens);
  sequence.node_budget = std::clamp(ask.node_budget, 0, speculation::kMaxTreeNodes);
  sequence.told = ask.proposers;
  for (uint32_t proposer_idx = 0; proposer_idx < num_proposers_; ++proposer_idx) {
    const Placement& placement = sequence.placements[proposer_idx];
    if (!placement.replica_id.has_value()) continue;
    Replica& replica = replicas_.at(*placement.replica_id);
    Session& session = replica.sessions.at(placement.session_id);
    session.wants_tree = sequence.WantsTree(proposer_idx);
    if (sequence.IsTold(proposer_idx)) MarkDirty(replica, placement.session_id, session);
  }
}

void SessionBook::Close(SequenceId sequence_id) {
  const auto it = sequences_.find(sequence_id);
  if (it == sequences_.end()) return;
  for (const Placement& placement : it->second.placements) {
    if (!placement.replica_id.has_value()) continue;
    Replica& replica = replicas_.at(*placement.replica_id);
    Session& session = replica.sessions.at(placement.session_id);
    session.wants_tree = false;
    if (session.due_position.has_value()) {
      if (replica.ended_unanswered.size() == kMaxEndedUnanswered) {
        replica.ended_unanswered.erase(replica.ended_unanswered.begin());
      }
      replica.ended_unanswered.emplace(placement.session_id, session);
    }
    WriteFarewell(replica, placement.session_id, session);
    if (session.is_told) replica.closes.push_back(placement.session_id);
    Forget(replica, placement.session_id);
  }
  sequences_.erase(it);
}

std::vector<Proposal> SessionBook::TakeProposals() {
  std::vector<Proposal> proposals;
  proposals.reserve(fresh_.size());
  for (const auto& [sequence_id, proposer_idx] : fresh_) {
    const auto it = sequences_.find(sequence_id);
    if (it == sequences_.end()) continue;  // the sequence was closed meanwhile
    std::optional<Proposal>& newest = it->second.placements[proposer_idx].newest;
    if (!newest.has_value()) continue;  // the id was closed and opened again
    proposals.push_back(*std::exchange(newest, std::nullopt));
  }
  fresh_.clear();
  return proposals;
}

void SessionBook::AddReplica(ReplicaId replica_id, uint32_t proposer_idx, const ReplicaLimits& limits, absl::Time now) {
  Replica& replica = replicas_[replica_id];
  replica.proposer_idx = proposer_idx;
  replica.limits = limits;
  if (limits.features != nullptr) replica.features.emplace(limits.features);
  for (auto& [sequence_id, sequence] : sequences_) {
    if (sequence.Misses(proposer_idx)) Place(sequence_id, sequence, proposer_idx, now);
  }
}

void SessionBook::RemoveReplica(ReplicaId replica_id, absl::Time now) {
  const auto it = replicas_.find(replica_id);
  if (it == replicas_.end()) return;
  const Replica replica = std::move(it->second);
  replicas_.erase(it);
  for (const auto& [session_id, session] : replica.sessions) {
    Sequence& sequence = sequences_.at(session.sequence_id);
    sequence.placements[replica.proposer_idx].replica_id.reset();
    Place(session.sequence_id, sequence, replica.proposer_idx, now);
  }
}

MissingSessions SessionBook::FindMissing(SequenceId sequence_id) const {
  MissingSessions missing;
  const auto it = sequences_.find(sequence_id);
  if (it == sequences_.end()) return missing;
  for (uint32_t i = 0; i < num_proposers_; ++i) {
    if (!it->second.Misses(i)) continue;
    const bool is_connected =
        std::ranges::any_of(replicas_, [i](const auto& replica) { return replica.second.proposer_idx == i; });
    (is_connected ? missing.refusing : missing.absent) |= 1u << i;
  }
  return missing;
}

void SessionBook::Place(SequenceId sequence_id, Sequence& sequence, uint32_t proposer_idx, absl::Time now) {
  Placement& placement = sequence.placements[proposer_idx];
  const std::optional<ReplicaId> chosen = ChooseReplica(sequence, proposer_idx);
  if (!chosen.has_value()) {
    placement.retry_at =
        now + BackoffDelay(retry_, ++placement.num_refusals, std::uniform_real_distribution<double>(0, 1)(random_));
    return;
  }
  placement.retry_at.reset();
  if (placement.last_replica_id.has_value() && placement.last_replica_id != chosen) ++totals_[proposer_idx].num_moved;
  Replica& replica = replicas_.at(*chosen);
  placement.replica_id = placement.last_replica_id = chosen;
  placement.session_id = replica.next_session_id++;
  Session& session = replica.sessions[placement.session_id];
  session.sequence_id = sequence_id;
  session.placed_at = now;
  session.wants_tree = sequence.WantsTree(proposer_idx);
  if (sequence.IsTold(proposer_idx)) MarkDirty(replica, placement.session_id, session);
}

void SessionBook::PlaceWaiting(ReplicaId replica_id, const Replica& replica, absl::Time now) {
  if (replica.limits.max_sessions == 0) return;  // it never was full
  std::vector<SequenceId> waiting;
  for (const auto& [sequence_id, sequence] : sequences_) {
    const Placement& placement = sequence.placements[replica.proposer_idx];
    const bool is_refused = std::ranges::count(placement.refused_by, replica_id) != 0;
    if (placement.retry_at.has_value() && !is_refused && Fits(replica, replica.proposer_idx, sequence)) {
      waiting.push_back(sequence_id);
    }
  }
  std::ranges::sort(waiting);
  for (const SequenceId sequence_id : waiting) {
    if (replica.sessions.size() >= replica.limits.max_sessions) return;
    Place(sequence_id, sequences_.at(sequence_id), replica.proposer_idx, now);
  }
}

std::optional<ReplicaId> SessionBook::ChooseReplica(const Sequence& sequence, uint32_t proposer_idx) const {
  const Placement& placement = sequence.placements[proposer_idx];
  // With the fewest sessions, then the oldest stream. A replica that has never answered gets a second session only if
  // no other can take it. Otherwise a replica that hangs would get the most sessions, since it comes back empty each
  // time.
  std::optional<std::tuple<bool, size_t, ReplicaId>> best;
  for (const auto& [replica_id, replica] : replicas_) {
    if (!Fits(replica, proposer_idx, sequence)) continue;
    // A message opens sessions before it closes others, so those that it closes still count.
    const size_t num_sessions = replica.sessions.size() + replica.closes.size();
    if (replica.limits.max_sessions != 0 && num_sessions >= replica.limits.max_sessions) continue;
    if (std::count(placement.refused_by.begin(), placement.refused_by.end(), replica_id) != 0) continue;
    const bool is_on_trial = !replica.has_answered && !replica.sessions.empty();
    const std::tuple candidate(is_on_trial, replica.sessions.size(), replica_id);
    if (!best.has_value() || candidate < *best) best = candidate;
  }
  if (!best.has_value()) return std::nullopt;
  return std::get<2>(*best);
}

void SessionBook::Forget(Replica& replica, uint64_t session_id) {
  ClearDue(replica, replica.sessions.at(session_id));
  if (replica.features.has_value()) replica.features->Forget(session_id);
  replica.sessions.erase(session_id);  // `dirty` may still list it; NextRequest skips it
}

void SessionBook::Refuse(Replica& replica, ReplicaId replica_id, uint64_t session_id, absl::Time now) {
  const SequenceId sequence_id = replica.sessions.at(session_id).sequence_id;
  Sequence& sequence = sequences_.at(sequence_id);
  Placement& placement = sequence.placements[replica.proposer_idx];
  Forget(replica, session_id);
  placement.replica_id.reset();
  placement.refused_by.push_back(replica_id);
  Place(sequence_id, sequence, replica.proposer_idx, now);
}

void SessionBook::RetryRefused(absl::Time now) {
  for (auto& [sequence_id, sequence] : sequences_) {
    for (uint32_t proposer_idx = 0; proposer_idx < num_proposers_; ++proposer_idx) {
      Placement& placement = sequence.placements[proposer_idx];
      if (!placement.retry_at.has_value() || *placement.retry_at > now) continue;
      placement.refused_by.clear();
      Place(sequence_id, sequence, proposer_idx, now);
    }
  }
}

std::optional<absl::Time> SessionBook::NextRetry() const {
  std::optional<absl::Time> next;
  for (const auto& [sequence_id, sequence] : sequences_) {
    for (const Placement& placement : sequence.placements) {
      if (placement.retry_at.has_value() && (!next.has_value() || *placement.retry_at < *next))
        next = placement.retry_at;
    }
  }
  return next;
}

AnswerVerdict SessionBook::TakeAnswer(ReplicaId replica_id, CheckedAnswer answer, absl::Time now) {
  AnswerVerdict verdict;
  const auto it = replicas_.find(replica_id);
  if (it == replicas_.end()) return verdict;  // the pool removed the replica before this answer arrived
  Replica& replica = it->second;
  const bool was_due = replica.num_due > 0;
  if (replica.features.has_value()) replica.features->AddCredit(answer.feature_credit_bytes);
  for (CheckedAnswer::Tree& tree : answer.trees) TakeTree(replica, tree, verdict, now);
  for (const CheckedAnswer::Refused& refused : answer.refused) {
    EndSilence(replica, refused.session_id, std::nullopt, now);
    if (!replica.sessions.contains(refused.session_id)) continue;
    Count(refused, verdict);
    Refuse(replica, replica_id, refused.session_id, now);
  }
  for (const uint64_t session_id : answer.unknown_session_ids) {
    EndSilence(replica, session_id, std::nullopt, now);
    const auto session = replica.sessions.find(session_id);
    if (session == replica.sessions.end()) continue;
    ++verdict.num_unknown;
    const SequenceId sequence_id = session->second.sequence_id;
    Sequence& sequence = sequences_.at(sequence_id);
    Placement& placement = sequence.placements[replica.proposer_idx];
    if (++placement.num_unknowns >= kMaxUnknownsInARow) {
      Refuse(replica, replica_id, session_id, now);
      continue;
    }
    Forget(replica, session_id);
    placement.replica_id.reset();
    Place(sequence_id, sequence, replica.proposer_idx, now);
  }
  verdict.num_bad_in_a_row = replica.num_bad_in_a_row;
  verdict.ends_wait = was_due && replica.num_due == 0;
  return verdict;
}

void SessionBook::TakeTree(Replica& replica, CheckedAnswer::Tree& answer, AnswerVerdict& verdict, absl::Time now) {
  const auto blame = [&](absl::string_view fault) {
    ++verdict.num_bad_trees;
    ++replica.num_bad_in_a_row;
    if (verdict.first_fault.empty()) verdict.first_fault = std::string(fault);
  };
  std::optional<uint64_t> position;
  if (answer.tree.ok()) position = answer.tree->position;
  EndSilence(replica, answer.session_id, position, now);  // bad trees end it too and are counted below
  const auto it = replica.sessions.find(answer.session_id);
  if (it == replica.sessions.end()) {
    const bool existed = answer.session_id > 0 && answer.session_id < replica.next_session_id;
    if (existed) {
      ++verdict.num_stale_trees;
    } else {
      blame(absl::StrCat("tree of session ", answer.session_id, ", which never existed"));
    }
    return;
  }
  Session& session = it->second;
  const bool is_tested =
      sequences_.at(session.sequence_id).introduction.rule() == v1::VERIFICATION_RULE_REJECTION_SAMPLING;
  absl::Status status = answer.tree.status();
  if (is_tested) status.Update(answer.fits_rejection_sampling);
  if (!status.ok()) {
    ClearDue(replica, session);  // a bad tree also answers: the engine stops waiting
    return blame(status.message());
  }
  speculation::TokenTree& tree = *answer.tree;
  if (tree.position > session.num_told) {
    ClearDue(replica, session);
    return blame(absl::StrCat("token tree position: expected at most ", session.num_told, ", got ", tree.position));
  }
  const std::optional<absl::Time> asked = session.questions.Answer(tree.position);
  if (asked.has_value()) verdict.round_trips.push_back(now - *asked);
  const absl::Time question = session.questions.WhenAsked(tree.position).value_or(now);
  if (session.due_position.has_value() && tree.position >= *session.due_position) {
    replica.round_trip.Add(now - session.due_since);
    ClearDue(replica, session);
  }
  session.answered_position = std::max(session.answered_position, tree.position);
  replica.has_answered = true;
  replica.num_bad_in_a_row = 0;
  if (!is_tested) tree.sampled.clear();
  KeepNewest(session,
             {.sequence_id = session.sequence_id,
              .proposer_idx = replica.proposer_idx,
              .tree = std::move(tree),
              .asked = question,
              .arrived = now},
             verdict);
}

void SessionBook::KeepNewest(const Session& session, Proposal proposal, AnswerVerdict& verdict) {
  Placement& placement = sequences_.at(session.sequence_id).placements[proposal.proposer_idx];
  if (proposal.arrived - session.placed_at >= retry_.max) {
    placement.num_unknowns = placement.num_refusals = 0;
    placement.refused_by.clear();
  }
  if (proposal.tree.position < placement.newest_position) {
    ++verdict.num_stale_trees;
    return;
  }
  ++verdict.num_trees;
  placement.newest_position = proposal.tree.position;
  if (!placement.newest.has_value()) fresh_.emplace_back(session.sequence_id, proposal.proposer_idx);
  placement.newest = std::move(proposal);
}

size_t SessionBook::num_sessions(ReplicaId replica_id) const {
  const auto it = replicas_.find(replica_id);
  return it == replicas_.end() ? 0 : it->second.sessions.size();
}

size_t SessionBook::num_waiting(uint32_t proposer_idx) const {
  return std::ranges::count_if(sequences_, [&](const auto& entry) {
    const Sequence& sequence = entry.second;
    const auto fits = [&](const auto& replica) { return Fits(replica.second, proposer_idx, sequence); };
    return sequence.Misses(proposer_idx) && std::ranges::any_of(replicas_, fits);
  });
}

}  // namespace foretoken::verifier
