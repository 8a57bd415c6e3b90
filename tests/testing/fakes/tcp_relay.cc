// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fakes/tcp_relay.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "common/base/steady_clock.h"
#include "kernels/check.h"

namespace foretoken::testing {
namespace {

constexpr int kLookEveryMs = 5;          // period of the check for new conditions and the destructor
constexpr int kLookOftenMs = 1;          // while bytes wait
constexpr size_t kMaxWaiting = 1 << 20;  // bytes of a direction; then the sender waits

sockaddr_in Local(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void MakePrompt(int end) {
  const int on = 1;
  setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_NONBLOCK);
}

int PortOf(const std::string& address) { return std::atoi(address.c_str() + address.rfind(':') + 1); }

}  // namespace

TcpRelay::TcpRelay(const std::string& target) : TcpRelay(PortOf(target)) {}

TcpRelay::TcpRelay(int target_port)
    : target_port_(target_port), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
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
  for (const Connection& connection : connections_) {
    close(connection.requests.from);
    close(connection.answers.from);
  }
  close(listener_);
}

void TcpRelay::Set(const NetworkConditions& conditions) {
  absl::MutexLock lock(&mutex_);
  conditions_ = conditions;
}

NetworkConditions TcpRelay::conditions() const {
  absl::MutexLock lock(&mutex_);
  return conditions_;
}

void TcpRelay::Run() {
  for (absl::Time last = SteadyNow(); !is_ending_;) {
    const NetworkConditions conditions = this->conditions();
    std::vector<pollfd> ends;
    bool is_waiting = false;
    if (!conditions.is_partitioned) ends.push_back({.fd = listener_, .events = POLLIN, .revents = 0});
    for (const Connection& connection : connections_) {
      for (const Pipe* pipe : {&connection.requests, &connection.answers}) {
        is_waiting = is_waiting || pipe->num_waiting_bytes > 0;
        if (pipe->TakesMore()) ends.push_back({.fd = pipe->from, .events = POLLIN, .revents = 0});
      }
    }
    poll(ends.data(), ends.size(), is_waiting ? kLookOftenMs : kLookEveryMs);
    const absl::Time now = SteadyNow();
    if (!ends.empty() && ends[0].fd == listener_ && ends[0].revents != 0) Accept();
    const bool is_cutting = is_cutting_.exchange(false);
    for (Connection& connection : connections_) {
      if (is_cutting) {
        connection.Close();
      } else {
        Forward(connection, this->conditions(), now - last);
      }
    }
    connections_.remove_if([](const Connection& connection) { return connection.is_closed; });
    last = now;
  }
}

void TcpRelay::Accept() {
  const int end = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  const int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in target = Local(target_port_);
  if (connect(other, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) != 0) {
    close(end);
    close(other);
    return;
  }
  MakePrompt(end);
  MakePrompt(other);
  connections_.push_back({.requests = {.from = end, .to = other}, .answers = {.from = other, .to = end}});
}

void TcpRelay::Forward(Connection& connection, const NetworkConditions& conditions, absl::Duration passed) {
  const absl::Time now = SteadyNow();
  bool is_open = true;
  for (Pipe* pipe : {&connection.requests, &connection.answers}) {
    const bool drops = pipe == &connection.requests ? conditions.drops_requests : conditions.drops_answers;
    pipe->is_silent = pipe->is_silent || drops || conditions.is_partitioned;
    if (pipe->TakesMore()) is_open = Read(*pipe, now + conditions.delay) && is_open;
    if (!pipe->is_silent) is_open = Write(*pipe, now, conditions, passed) && is_open;
  }
  if (!is_open) connection.Close();
}

void TcpRelay::Connection::Close() {
  is_closed = true;
  close(requests.from);
  close(answers.from);
}

bool TcpRelay::Pipe::TakesMore() const { return !is_silent && num_waiting_bytes < kMaxWaiting; }

// False: the peer has closed.
bool TcpRelay::Read(Pipe& pipe, absl::Time due) {
  char buffer[1 << 16];
  const ssize_t length = recv(pipe.from, buffer, sizeof(buffer), 0);
  if (length <= 0) return length < 0 && errno == EAGAIN;
  pipe.chunks.push_back({.due = due, .bytes = std::string(buffer, static_cast<size_t>(length))});
  pipe.num_waiting_bytes += static_cast<size_t>(length);
  return true;
}

bool TcpRelay::Write(Pipe& pipe, absl::Time now, const NetworkConditions& conditions, absl::Duration passed) {
  const double rate = conditions.bytes_per_second;
  const double burst = rate / 10;  // saved up while nothing was sent
  pipe.allowance = std::min(pipe.allowance + rate * absl::ToDoubleSeconds(passed), std::max(burst, 1.0));
  while (!pipe.chunks.empty() && pipe.chunks.front().due <= now) {
    Chunk& chunk = pipe.chunks.front();
    const size_t allowed = rate == 0 ? chunk.bytes.size() : static_cast<size_t>(pipe.allowance);
    if (allowed == 0) return true;
    const ssize_t length = send(pipe.to, chunk.bytes.data(), std::min(allowed, chunk.bytes.size()), MSG_NOSIGNAL);
    if (length < 0) return errno == EAGAIN;
    pipe.allowance -= static_cast<double>(length);
    pipe.num_waiting_bytes -= static_cast<size_t>(length);
    chunk.bytes.erase(0, static_cast<size_t>(length));
    if (chunk.bytes.empty()) pipe.chunks.pop_front();
  }
  return true;
}

}  // namespace foretoken::testing
