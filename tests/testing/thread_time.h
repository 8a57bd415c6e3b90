// SPDX-License-Identifier: Apache-2.0
// Times that a busy machine does not lengthen.
#pragma once

#include <ctime>

#include "absl/time/time.h"

namespace foretoken::testing {

// How long this thread has had a processor.
inline absl::Duration ThreadTime() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace foretoken::testing
