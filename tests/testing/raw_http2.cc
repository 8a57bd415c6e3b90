// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/raw_http2.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/match.h"
#include "common/base/steady_clock.h"
#include "kernels/check.h"

namespace foretoken::testing {
namespace {

constexpr size_t kHeadBytes = 9;            // of every frame
constexpr size_t kMaxPayloadBytes = 16384;  // that a server must take

// A number of `size` bytes, the highest first.
std::string BigEndian(size_t number, int size) {
  std::string bytes;
  for (int i = size - 1; i >= 0; --i) bytes.push_back(static_cast<char>(number >> (8 * i)));
  return bytes;
}

size_t NumberOf(const std::string& bytes, size_t begin, size_t size) {
  size_t number = 0;
  for (size_t i = begin; i < begin + size; ++i) number = number << 8 | static_cast<uint8_t>(bytes[i]);
  return number;
}

std::string Encode(const Http2Frame& frame) {
  std::string bytes = BigEndian(frame.payload.size(), 3);
  bytes.push_back(static_cast<char>(frame.type));
  bytes.push_back(static_cast<char>(frame.flags));
  return bytes + BigEndian(frame.stream_id, 4) + frame.payload;
}

// HPACK (RFC 7541): a string without Huffman's code, with its length as an integer of seven bits and more.
std::string HpackString(const std::string& text) {
  constexpr size_t kMask = 127;
  std::string bytes(1, static_cast<char>(std::min(text.size(), kMask)));
  if (text.size() >= kMask) {
    size_t left = text.size() - kMask;
    for (; left >= 128; left >>= 7) bytes.push_back(static_cast<char>(left | 128));
    bytes.push_back(static_cast<char>(left));
  }
  return bytes + text;
}

}  // namespace

std::vector<Http2Frame> RequestHeaders(uint32_t stream_id, const std::string& method,
                                       const std::vector<std::pair<std::string, std::string>>& more) {
  std::vector<std::pair<std::string, std::string>> headers = {
      {":method", "POST"}, {":scheme", "http"}, {":path", method},
      {":authority", "x"}, {"te", "trailers"},  {"content-type", "application/grpc"}};
  headers.insert(headers.end(), more.begin(), more.end());
  std::string block;
  for (const auto& [name, value] : headers) {
    block.push_back('\0');  // a literal field that no table gets
    block += HpackString(name) + HpackString(value);
  }
  std::vector<Http2Frame> frames;
  for (size_t begin = 0; begin < block.size(); begin += kMaxPayloadBytes) {
    const bool is_last = begin + kMaxPayloadBytes >= block.size();
    frames.push_back({.type = begin == 0 ? Http2Type::kHeaders : Http2Type::kContinuation,
                      .flags = is_last ? kEndHeaders : uint8_t{0},
                      .stream_id = stream_id,
                      .payload = block.substr(begin, kMaxPayloadBytes)});
  }
  return frames;
}

bool Has(const std::vector<Http2Frame>& frames, Http2Type type, absl::string_view text) {
  return std::ranges::any_of(
      frames, [&](const Http2Frame& frame) { return frame.type == type && absl::StrContains(frame.payload, text); });
}

RawHttp2::RawHttp2(const std::string& address) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in server = {};
  server.sin_family = AF_INET;
  server.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  FT_CHECK(connect(socket_, reinterpret_cast<const sockaddr*>(&server), sizeof(server)) == 0);
}

RawHttp2::~RawHttp2() { close(socket_); }

void RawHttp2::Greet(bool acknowledges) {
  SendBytes("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  Send({{.type = Http2Type::kSettings}});
  if (!acknowledges) return;
  for (const absl::Time end = SteadyNow() + absl::Seconds(10); !is_closed_ && SteadyNow() < end;) {
    if (Has(ReadUntilClosed(absl::Milliseconds(1)), Http2Type::kSettings)) break;
  }
  Send({{.type = Http2Type::kSettings, .flags = kAcknowledges}});
}

void RawHttp2::Send(const std::vector<Http2Frame>& frames) {
  std::string bytes;
  for (const Http2Frame& frame : frames) bytes += Encode(frame);
  SendBytes(bytes);
}

void RawHttp2::SendBytes(const std::string& bytes) {
  size_t num_sent = 0;
  while (num_sent < bytes.size()) {
    const ssize_t length = send(socket_, bytes.data() + num_sent, bytes.size() - num_sent, MSG_NOSIGNAL);
    if (length < 0) return;  // the server has closed the connection: the next read says so
    num_sent += static_cast<size_t>(length);
  }
}

std::vector<Http2Frame> RawHttp2::ReadUntilClosed(absl::Duration length) {
  std::vector<Http2Frame> frames;
  for (const absl::Time end = SteadyNow() + length; !is_closed_;) {
    const absl::Duration left = std::max(end - SteadyNow(), absl::ZeroDuration());
    pollfd readable = {.fd = socket_, .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(left))) <= 0) break;
    char buffer[1 << 16];
    const ssize_t num_read = recv(socket_, buffer, sizeof(buffer), 0);
    is_closed_ = num_read <= 0;
    if (!is_closed_) unread_.append(buffer, static_cast<size_t>(num_read));
    while (unread_.size() >= kHeadBytes && unread_.size() >= kHeadBytes + NumberOf(unread_, 0, 3)) {
      const size_t size = NumberOf(unread_, 0, 3);
      frames.push_back({.type = static_cast<Http2Type>(unread_[3]),
                        .flags = static_cast<uint8_t>(unread_[4]),
                        .stream_id = static_cast<uint32_t>(NumberOf(unread_, 5, 4)),
                        .payload = unread_.substr(kHeadBytes, size)});
      unread_.erase(0, kHeadBytes + size);
    }
  }
  return frames;
}

}  // namespace foretoken::testing
