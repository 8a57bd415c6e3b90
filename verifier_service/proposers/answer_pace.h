// SPDX-License-Identifier: Apache-2.0
// Limits the rate at which the verifier reads a proposer's messages. Every message costs CPU time to read. Beyond a
// rate of messages, of sessions that they are about, or of bytes the verifier delays the next read: the peer's
// flow-control window fills, and the peer waits.
//
//   const absl::Duration pause = pace.Count({num_bytes, num_sessions}, limits, now);  // before the next read
//
// The limits are several times the rates of proposers that answer every step of a full batch.
#pragma once

#include <algorithm>
#include <cstddef>

#include "absl/time/time.h"

namespace foretoken::verifier {

class AnswerPace {
 public:
  struct Limits {
    double messages_per_second = 20'000;
    double sessions_per_second = 1'000'000;
    double bytes_per_second = 128 << 20;
    absl::Duration burst = absl::Milliseconds(100);  // the messages of this time may come at once
  };

  struct Message {
    size_t num_bytes = 0, num_sessions = 0;
  };

  // Counts a message. Returns the delay before the next read.
  absl::Duration Count(const Message& message, const Limits& limits, absl::Time now) {
    const double seconds = std::max({1 / limits.messages_per_second,
                                     static_cast<double>(message.num_sessions) / limits.sessions_per_second,
                                     static_cast<double>(message.num_bytes) / limits.bytes_per_second});
    even_at_ = std::max(even_at_, now - limits.burst) + absl::Seconds(seconds);
    return std::max(even_at_ - now, absl::ZeroDuration());
  }

 private:
  absl::Time even_at_ = absl::InfinitePast();  // when the messages read so far fit the rates
};

}  // namespace foretoken::verifier
