// SPDX-License-Identifier: Apache-2.0
// How fast a proposer is listened to. To read a message costs the verifier a core's time whatever it says, so beyond a
// rate of messages and of bytes the next one is not read for a while: the peer's window fills, and it is the peer that
// waits.
//
//   const absl::Duration pause = pace.Count(num_bytes, limits, now);  // before the next message is read
//
// The rates are several times what proposers say that answer every step of a full batch.
#pragma once

#include <algorithm>
#include <cstddef>

#include "absl/time/time.h"

namespace foretoken::verifier {

class AnswerPace {
 public:
  struct Limits {
    double messages_per_second = 20'000;
    double bytes_per_second = 128 << 20;
    absl::Duration burst = absl::Milliseconds(100);  // what was not said for so long may be said at once
  };

  // A message came. Returns how long the next one has to wait.
  absl::Duration Count(size_t num_bytes, const Limits& limits, absl::Time now) {
    const double seconds =
        std::max(1 / limits.messages_per_second, static_cast<double>(num_bytes) / limits.bytes_per_second);
    even_at_ = std::max(even_at_, now - limits.burst) + absl::Seconds(seconds);
    return std::max(even_at_ - now, absl::ZeroDuration());
  }

 private:
  absl::Time even_at_ = absl::InfinitePast();  // when everything heard so far has had its time
};

}  // namespace foretoken::verifier
