// SPDX-License-Identifier: Apache-2.0
// A port that forwards every connection to another address until it freezes. Then it forwards no bytes and closes no
// connection, like a host that loses its power.
//
//   TcpRelay relay(server_port);
//   Connect(relay.address());
//   relay.Freeze();
//
// Threads: the relay runs its own thread. Any thread may call the methods.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <thread>

namespace foretoken::testing {

class TcpRelay {
 public:
  explicit TcpRelay(int target_port);
  TcpRelay(const TcpRelay&) = delete;
  ~TcpRelay();

  // "127.0.0.1:port"
  const std::string& address() const { return address_; }
  void Freeze() { is_frozen_ = true; }

 private:
  void Run();
  void Accept();
  void Close(int end);

  const int target_port_;
  int listener_ = -1;
  std::string address_;
  std::map<int, int> others_;  // each end of a connection to the other end
  std::atomic<bool> is_frozen_{false};
  std::atomic<bool> is_ending_{false};
  std::thread thread_;
};

}  // namespace foretoken::testing
