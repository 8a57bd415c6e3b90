// SPDX-License-Identifier: Apache-2.0
// Messages on a socket between two of our own processes: a kind, a length and bytes. Both processes run the same
// program on the same machine, so numbers are in its own byte order.
//
// Errors: ABORTED if the other process has ended and did not read all that was written, UNAVAILABLE if it has ended and
// read all, DEADLINE_EXCEEDED at the deadline, RESOURCE_EXHAUSTED for a frame above kMaxFrameBytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace foretoken::verifier {

inline constexpr size_t kMaxFrameBytes = size_t{256} << 20;

struct Frame {
  uint32_t kind = 0;
  std::string bytes;
};

// The deadline is on the clock of SteadyNow.
absl::Status WriteFrame(int fd, uint32_t kind, absl::string_view bytes, absl::Time deadline = absl::InfiniteFuture());
absl::StatusOr<Frame> ReadFrame(int fd, absl::Time deadline = absl::InfiniteFuture());

}  // namespace foretoken::verifier
