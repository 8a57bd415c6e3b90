// SPDX-License-Identifier: Apache-2.0
// Counts the sessions and tokens of a proposer, over all streams and per stream, and keeps both within their limits.
//
//   SessionRoom room(limits, gauges);          // one per service
//   StreamRoom of_stream(room);                // one per stream; its destructor returns everything that it has taken
//   if (std::optional<Refusal> refusal = of_stream.TakeSession()) ...
//   if (std::optional<Refusal> refusal = of_stream.TakeTokens(num_tokens)) ...
//   of_stream.GiveBackSession(num_tokens);
//
// Tokens count when they arrive, so a context that stays incomplete counts, too. A mask of allowed tokens counts as one
// token per kMaskBytesPerToken bytes.
//
// Threads: SessionRoom any; a StreamRoom one at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "common/telemetry/metrics.h"
#include "foretoken/v1/proposal.pb.h"
#include "proposer_service/config.h"

namespace foretoken::proposer {

// Why the proposer refuses a session. As RefusedSession in the protocol.
struct Refusal {
  v1::RefusalReason reason = v1::REFUSAL_REASON_UNSPECIFIED;
  std::string detail;
};

class SessionRoom {
 public:
  struct Gauges {
    prometheus::Gauge& sessions;
    prometheus::Gauge& tokens;
  };

  SessionRoom(const SessionLimits& limits, const Gauges& gauges) : limits_(limits), gauges_(gauges) {}

  const SessionLimits& limits() const { return limits_; }
  // False: the limit is reached.
  bool TryTakeSession();
  bool TryTakeTokens(int64_t num_tokens);
  void GiveBack(int64_t num_sessions, int64_t num_tokens);

 private:
  const SessionLimits limits_;
  const Gauges gauges_;
  std::atomic<int64_t> num_sessions_ = 0;
  std::atomic<int64_t> num_tokens_ = 0;
};

class StreamRoom {
 public:
  static constexpr int64_t kMaskBytesPerToken = 32;

  explicit StreamRoom(SessionRoom& room) : room_(room) {}
  StreamRoom(const StreamRoom&) = delete;
  StreamRoom& operator=(const StreamRoom&) = delete;
  ~StreamRoom() { room_.GiveBack(num_sessions_, num_tokens_); }

  const SessionLimits& limits() const { return room_.limits(); }
  // Unset: there was room.
  std::optional<Refusal> TakeSession();
  std::optional<Refusal> TakeTokens(int64_t num_tokens);
  void GiveBackTokens(int64_t num_tokens);
  // Returns the room of a session with this many tokens.
  void GiveBackSession(int64_t num_tokens);

 private:
  SessionRoom& room_;
  int64_t num_sessions_ = 0;
  int64_t num_tokens_ = 0;
};

}  // namespace foretoken::proposer
