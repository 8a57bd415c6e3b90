// SPDX-License-Identifier: Apache-2.0
// The half of SessionBook that makes messages: unsent tokens of a replica's sessions become its next message.
#include <algorithm>
#include <limits>
#include <utility>

#include "verifier_service/proposers/session_book.h"

namespace foretoken::verifier {
namespace {

// A token id is a varint of at most five bytes, so this many ids fit into the protocol's 64 KiB.
constexpr size_t kMaxTokenBytes = 5;
constexpr size_t kMaxPieceTokens = 64 * 1024 / kMaxTokenBytes;
// A session with at most this many unsent tokens is up to date. Its tokens go out in every message, beside a piece of a
// long context.
constexpr size_t kShortTokens = 64;
// The tokens and masks of one message take half of the room on the wire. Openings, farewells and closes have the rest.
constexpr size_t kMaxEventsBytes = rpc::kMaxProposeRequestBytes / 2;
constexpr size_t kMaxEventBytes = 64;  // of an advance without its tokens and its mask
// Of the sessions that end while their replica does not read.
constexpr size_t kMaxFarewellBytes = kMaxEventsBytes / 8;

uint32_t Microseconds(absl::Duration duration) {
  const int64_t us = absl::ToInt64Microseconds(duration);
  return static_cast<uint32_t>(std::clamp<int64_t>(us, 0, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

void SessionBook::MarkFlushed(ReplicaId replica_id, const ComingStep& forecast, absl::Time now) {
  const auto it = replicas_.find(replica_id);
  if (it == replicas_.end()) return;
  Replica& replica = it->second;
  replica.forecast = forecast;
  replica.flushed_at = now;
  for (const uint64_t session_id : replica.dirty) {
    const auto found = replica.sessions.find(session_id);
    if (found == replica.sessions.end()) continue;
    Session& session = found->second;
    const size_t num_tokens = sequences_.at(session.sequence_id).token_ids.size();
    if (!session.wants_tree) {
      ClearDue(replica, session);  // the newer event asks for no tree, so none is due
    } else if (session.is_told && num_tokens - session.num_told <= kShortTokens) {
      MarkDue(replica, session, num_tokens, now);
    }
  }
}

std::optional<v1::ProposeRequest> SessionBook::NextRequest(ReplicaId replica_id, absl::Time now) {
  const auto it = replicas_.find(replica_id);
  if (it == replicas_.end()) return std::nullopt;
  Replica& replica = it->second;
  if (replica.dirty.empty() && replica.closes.empty() && !replica.features.has_value()) return std::nullopt;
  v1::ProposeRequest request = std::exchange(replica.farewell, {});
  replica.num_farewell_bytes = 0;
  size_t num_piece_tokens = kMaxPieceTokens;  // the room for long contexts in this message
  size_t num_bytes = kMaxEventsBytes;         // the room for all contexts and masks
  std::vector<uint64_t> unfinished;
  for (const uint64_t session_id : replica.dirty) {
    const auto found = replica.sessions.find(session_id);
    if (found == replica.sessions.end()) continue;  // the session was closed before it was written
    Session& session = found->second;
    const size_t num_tokens = sequences_.at(session.sequence_id).token_ids.size();
    const size_t num_left = num_tokens - session.num_told;
    const bool is_short = session.is_told && num_left <= kShortTokens;
    const size_t num_now = is_short ? num_left : std::min(num_left, num_piece_tokens);
    const size_t num_mask_bytes = num_now == num_left ? MaskToSend(replica, session).size() : 0;
    const size_t num_event_bytes = kMaxEventBytes + num_now * kMaxTokenBytes + num_mask_bytes;
    if ((!is_short && num_piece_tokens == 0) || num_event_bytes > num_bytes) {
      unfinished.push_back(session_id);
      continue;
    }
    num_bytes -= num_event_bytes;
    // An introduction takes space even without tokens.
    if (!is_short) num_piece_tokens -= std::min(num_piece_tokens, std::max(num_now, kShortTokens));
    WriteSession(replica, session_id, num_now, request);
    if (num_now < num_left) {
      unfinished.push_back(session_id);
      continue;
    }
    session.is_dirty = false;
    if (std::exchange(session.wants_tree, false)) {
      MarkDue(replica, session, num_tokens, now);
    } else {
      ClearDue(replica, session);  // its last question was flushed and never written
    }
  }
  replica.dirty = std::move(unfinished);
  for (const uint64_t session_id : replica.closes) request.add_closes()->set_session_id(session_id);
  if (!std::exchange(replica.closes, {}).empty()) PlaceWaiting(replica_id, replica, now);
  if (replica.features.has_value()) {
    replica.features->Write([&](uint64_t session_id) { return replica.sessions.at(session_id).num_told; }, request);
  }
  const int num_events =
      request.opens_size() + request.advances_size() + request.closes_size() + request.features_size();
  if (num_events == 0) return std::nullopt;
  return request;
}

std::vector<FeatureDemand> SessionBook::FeatureDemands() const {
  std::vector<FeatureDemand> demands;
  for (const auto& [replica_id, replica] : replicas_) {
    if (!replica.features.has_value()) continue;
    std::vector<FeatureLane::Need> needs;
    for (const auto& [session_id, session] : replica.sessions) {
      const Sequence& sequence = sequences_.at(session.sequence_id);
      if (!sequence.IsTold(replica.proposer_idx)) continue;
      // The feature of the last token does not exist before the step that computes its row.
      const std::optional<FeatureLane::Need> need = replica.features->NeedOf(session_id, sequence.token_ids.size() - 1);
      if (need.has_value()) needs.push_back(*need);
    }
    for (const FeatureLane::Need& need : replica.features->Affordable(std::move(needs))) {
      demands.push_back({.sequence_id = replica.sessions.at(need.session_id).sequence_id,
                         .source = replica.features->source().get(),
                         .begin = static_cast<int32_t>(need.begin),
                         .end = static_cast<int32_t>(need.end),
                         .replica_id = replica_id,
                         .session_id = need.session_id});
    }
  }
  return demands;
}

void SessionBook::GiveFeatures(const FeatureDemand& demand, int32_t begin, std::vector<uint16_t> values) {
  const auto it = replicas_.find(demand.replica_id);
  if (it == replicas_.end() || !it->second.sessions.contains(demand.session_id)) return;  // it ended meanwhile
  it->second.features->Give(demand.session_id, static_cast<uint64_t>(begin), std::move(values));
}

void SessionBook::WriteFarewell(Replica& replica, uint64_t session_id, const Session& session) {
  const Sequence& sequence = sequences_.at(session.sequence_id);
  if (session.is_told && session.num_told < sequence.num_opening) return;  // the prompt was not fully sent
  const size_t num_left = sequence.token_ids.size() - session.num_told;
  const size_t num_bytes =
      num_left * kMaxTokenBytes + kMaxEventBytes + (session.is_told ? 0 : sequence.introduction.ByteSizeLong());
  if (num_left == 0 || replica.num_farewell_bytes + num_bytes > kMaxFarewellBytes) return;
  replica.num_farewell_bytes += num_bytes;
  WriteSession(replica, session_id, num_left, replica.farewell);
}

absl::string_view SessionBook::MaskToSend(const Replica& replica, const Session& session) const {
  if (!session.wants_tree || !replica.limits.reads_allowed_tokens) return {};
  return sequences_.at(session.sequence_id).mask;
}

void SessionBook::WriteSession(Replica& replica, uint64_t session_id, size_t num_tokens, v1::ProposeRequest& request) {
  Session& session = replica.sessions.at(session_id);
  const Sequence& sequence = sequences_.at(session.sequence_id);
  const size_t num_all = sequence.token_ids.size();
  const uint32_t node_budget = session.wants_tree ? static_cast<uint32_t>(sequence.node_budget) : 0;
  const auto write = [&](auto& message, size_t num_now, bool awaits_more) {
    const auto tokens = std::span<const int32_t>(sequence.token_ids).subspan(session.num_told, num_now);
    session.num_told += num_now;
    message.set_session_id(session_id);
    message.mutable_token_ids()->Add(tokens.begin(), tokens.end());
    message.set_awaiting_more(awaits_more);
    // The opening asks for no tree if an advance follows in the same message.
    if (awaits_more || session.num_told == num_all) message.set_node_budget(node_budget);
    const absl::string_view mask = session.num_told == num_all ? MaskToSend(replica, session) : absl::string_view();
    message.set_allowed_tokens(mask.data(), mask.size());
  };
  const size_t goal = session.num_told + num_tokens;
  if (!std::exchange(session.is_told, true)) {
    v1::OpenSession& open = *request.add_opens();
    open = sequence.introduction;
    write(open, std::min(goal, sequence.num_opening), goal < sequence.num_opening);
    if (session.num_told == num_all) return;
  }
  // Generated tokens go into an event apart from the opening, because proposers treat the two differently.
  while (session.num_told < goal || num_tokens == 0) {
    const size_t end = session.num_told < sequence.num_opening ? std::min(goal, sequence.num_opening) : goal;
    v1::AdvanceSession& advance = *request.add_advances();
    advance.set_base_position(session.num_told);
    advance.set_next_step_us(Microseconds(replica.forecast.patience));
    advance.set_step_us(Microseconds(replica.forecast.step));
    write(advance, end - session.num_told, end != sequence.num_opening && end < num_all);
    if (num_tokens == 0) return;
  }
}

}  // namespace foretoken::verifier
