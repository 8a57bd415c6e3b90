// SPDX-License-Identifier: Apache-2.0
// A client that writes HTTP/2 (RFC 9113) by hand, so it can also do what a gRPC client never does.
//
//   RawHttp2 client(verifier.address());
//   client.Greet();
//   client.Send(RequestHeaders(1, "/grpc.health.v1.Health/Watch"));
//   const std::vector<Http2Frame> answers = client.ReadUntilClosed(absl::Seconds(1));
//   EXPECT_TRUE(client.is_closed());
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace foretoken::testing {

enum class Http2Type : uint8_t {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kContinuation = 9
};

struct Http2Frame {
  Http2Type type;
  uint8_t flags = 0;
  uint32_t stream_id = 0;
  std::string payload = {};
};

inline constexpr uint8_t kEndStream = 1, kAcknowledges = 1, kEndHeaders = 4;

// The frames that begin a gRPC call. The headers need several frames if they are long.
std::vector<Http2Frame> RequestHeaders(uint32_t stream_id, const std::string& method,
                                       const std::vector<std::pair<std::string, std::string>>& more = {});

// Whether a frame of this type holds the text.
bool Has(const std::vector<Http2Frame>& frames, Http2Type type, absl::string_view text = {});

class RawHttp2 {
 public:
  explicit RawHttp2(const std::string& address);  // "127.0.0.1:port"
  RawHttp2(const RawHttp2&) = delete;
  ~RawHttp2();

  // Sends the preface and empty settings, and acknowledges the server's settings once they have come. gRPC takes an
  // earlier acknowledgement for one of its defaults, and then applies no limit of calls, as without any.
  void Greet(bool acknowledges = true);
  void Send(const std::vector<Http2Frame>& frames);
  // Reads for this long, or until the server has closed the connection.
  std::vector<Http2Frame> ReadUntilClosed(absl::Duration length);
  bool is_closed() const { return is_closed_; }

 private:
  void SendBytes(const std::string& bytes);

  int socket_ = -1;
  bool is_closed_ = false;
  std::string unread_;
};

}  // namespace foretoken::testing
