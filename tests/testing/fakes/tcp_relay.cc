// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fakes/tcp_relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "kernels/check.h"

namespace foretoken::testing {
namespace {

constexpr int kLookEveryMs = 5;  // period of the check for Freeze and the destructor

sockaddr_in Local(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

TcpRelay::TcpRelay(int target_port) : target_port_(target_port), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address = Local(0);
  socklen_t size = sizeof(address);
  FT_CHECK(bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) == 0);
  FT_CHECK(listen(listener_, 8) == 0);
  FT_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  thread_ = std::thread([this] { Run(); });
}

TcpRelay::~TcpRelay() {
  is_ending_ = true;
  thread_.join();
  for (const auto& [end, other] : others_) close(end);
  close(listener_);
}

void TcpRelay::Run() {
  while (!is_ending_) {
    std::vector<pollfd> ends = {{.fd = listener_, .events = POLLIN, .revents = 0}};
    for (const auto& [end, other] : others_) ends.push_back({.fd = end, .events = POLLIN, .revents = 0});
    if (is_frozen_) ends.clear();  // the kernel still accepts connections and bytes, and nothing answers
    poll(ends.data(), ends.size(), kLookEveryMs);
    for (const pollfd& end : ends) {
      if (end.revents == 0 || is_frozen_) continue;
      if (end.fd == listener_) {
        Accept();
        continue;
      }
      const auto other = others_.find(end.fd);
      if (other == others_.end()) continue;  // closed together with its other end
      char buffer[1 << 16];
      const ssize_t length = recv(end.fd, buffer, sizeof(buffer), 0);
      if (length <= 0 || send(other->second, buffer, static_cast<size_t>(length), MSG_NOSIGNAL) != length) {
        Close(end.fd);
      }
    }
  }
}

void TcpRelay::Accept() {
  const int end = accept(listener_, nullptr, nullptr);
  const int other = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in target = Local(target_port_);
  if (connect(other, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) != 0) {
    close(end);
    close(other);
    return;
  }
  others_[end] = other;
  others_[other] = end;
}

void TcpRelay::Close(int end) {
  const int other = others_.at(end);
  others_.erase(end);
  others_.erase(other);
  close(end);
  close(other);
}

}  // namespace foretoken::testing
