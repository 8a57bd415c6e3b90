// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/session_room.h"

#include "absl/strings/str_cat.h"

namespace foretoken::proposer {
namespace {

bool TryAdd(int64_t num, int64_t limit, std::atomic<int64_t>& total) {
  if (total.fetch_add(num) + num <= limit) return true;
  total.fetch_sub(num);
  return false;
}

}  // namespace

bool SessionRoom::TryTakeSession() {
  if (!TryAdd(1, limits_.max_sessions, num_sessions_)) return false;
  gauges_.sessions.Increment();
  return true;
}

bool SessionRoom::TryTakeTokens(int64_t num_tokens) {
  if (!TryAdd(num_tokens, limits_.max_total_tokens, num_tokens_)) return false;
  gauges_.tokens.Increment(static_cast<double>(num_tokens));
  return true;
}

void SessionRoom::GiveBack(int64_t num_sessions, int64_t num_tokens) {
  num_sessions_.fetch_sub(num_sessions);
  num_tokens_.fetch_sub(num_tokens);
  gauges_.sessions.Decrement(static_cast<double>(num_sessions));
  gauges_.tokens.Decrement(static_cast<double>(num_tokens));
}

std::optional<Refusal> StreamRoom::TakeSession() {
  const SessionLimits& limits = room_.limits();
  if (num_sessions_ >= limits.max_stream_sessions()) {
    return Refusal{.reason = v1::REFUSAL_REASON_STREAM_FULL,
                   .detail = absl::StrCat("sessions of a stream: expected at most ", limits.max_stream_sessions())};
  }
  if (!room_.TryTakeSession()) {
    return Refusal{.reason = v1::REFUSAL_REASON_FULL,
                   .detail = absl::StrCat("max_sessions: expected at most ", limits.max_sessions)};
  }
  ++num_sessions_;
  return std::nullopt;
}

std::optional<Refusal> StreamRoom::TakeTokens(int64_t num_tokens) {
  const SessionLimits& limits = room_.limits();
  if (num_tokens_ + num_tokens > limits.max_stream_tokens()) {
    return Refusal{.reason = v1::REFUSAL_REASON_STREAM_FULL,
                   .detail = absl::StrCat("tokens of a stream: expected at most ", limits.max_stream_tokens())};
  }
  if (!room_.TryTakeTokens(num_tokens)) {
    return Refusal{.reason = v1::REFUSAL_REASON_FULL,
                   .detail = absl::StrCat("max_total_tokens: expected at most ", limits.max_total_tokens)};
  }
  num_tokens_ += num_tokens;
  return std::nullopt;
}

void StreamRoom::GiveBackTokens(int64_t num_tokens) {
  room_.GiveBack(0, num_tokens);
  num_tokens_ -= num_tokens;
}

void StreamRoom::GiveBackSession(int64_t num_tokens) {
  room_.GiveBack(1, num_tokens);
  --num_sessions_;
  num_tokens_ -= num_tokens;
}

}  // namespace foretoken::proposer
