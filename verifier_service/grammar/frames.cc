// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/grammar/frames.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/steady_clock.h"

namespace foretoken::verifier {
namespace {

struct Header {
  uint64_t kind = 0;
  uint64_t num_bytes = 0;
};

// Waits until the socket can be read or written.
absl::Status Await(int fd, int16_t events, absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("the other process does not answer");
    const auto timeout_ms = static_cast<int>(absl::ToInt64Milliseconds(std::min(left, absl::Minutes(1)))) + 1;
    pollfd polled = {.fd = fd, .events = events, .revents = 0};
    const int num_ready = poll(&polled, 1, timeout_ms);
    if (num_ready > 0) return absl::OkStatus();
    if (num_ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "poll");
  }
}

// Calls `transfer` until it has moved all bytes. It moves some bytes and returns their number, as send and recv do.
template <typename Transfer>
absl::Status MoveAll(int fd, int16_t events, size_t num_bytes, absl::Time deadline, const Transfer& transfer) {
  for (size_t num_moved = 0; num_moved < num_bytes;) {
    FT_RETURN_IF_ERROR(Await(fd, events, deadline));
    const ssize_t num_now = transfer(num_moved, num_bytes - num_moved);
    if (num_now < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    // The kernel tells an end with unread bytes from another one (unix(7), ECONNRESET).
    if (num_now < 0 && (errno == ECONNRESET || errno == EPIPE)) {
      return absl::AbortedError("the other process has gone and left bytes unread");
    }
    if (num_now <= 0) return absl::UnavailableError("the other process has gone");
    num_moved += static_cast<size_t>(num_now);
  }
  return absl::OkStatus();
}

absl::Status Send(int fd, const char* bytes, size_t num_bytes, absl::Time deadline) {
  return MoveAll(fd, POLLOUT, num_bytes, deadline, [&](size_t begin, size_t count) {
    return send(fd, bytes + begin, count, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

absl::Status Receive(int fd, char* bytes, size_t num_bytes, absl::Time deadline) {
  return MoveAll(fd, POLLIN, num_bytes, deadline,
                 [&](size_t begin, size_t count) { return recv(fd, bytes + begin, count, MSG_DONTWAIT); });
}

}  // namespace

absl::Status WriteFrame(int fd, uint32_t kind, absl::string_view bytes, absl::Time deadline) {
  if (bytes.size() > kMaxFrameBytes) return absl::ResourceExhaustedError(absl::StrCat(bytes.size(), " bytes"));
  const Header header = {.kind = kind, .num_bytes = bytes.size()};
  FT_RETURN_IF_ERROR(Send(fd, reinterpret_cast<const char*>(&header), sizeof(header), deadline));
  return Send(fd, bytes.data(), bytes.size(), deadline);
}

absl::StatusOr<Frame> ReadFrame(int fd, absl::Time deadline) {
  Header header;
  FT_RETURN_IF_ERROR(Receive(fd, reinterpret_cast<char*>(&header), sizeof(header), deadline));
  if (header.num_bytes > kMaxFrameBytes) return absl::ResourceExhaustedError(absl::StrCat(header.num_bytes, " bytes"));
  Frame frame = {.kind = static_cast<uint32_t>(header.kind), .bytes = std::string(header.num_bytes, '\0')};
  FT_RETURN_IF_ERROR(Receive(fd, frame.bytes.data(), frame.bytes.size(), deadline));
  return frame;
}

}  // namespace foretoken::verifier
