// SPDX-License-Identifier: Apache-2.0
// A port that forwards every connection to another port of this machine, over a network that a test makes worse.
//
//   TcpRelay relay(server_port);
//   Connect(relay.address());
//   relay.Set({.delay = absl::Milliseconds(200)});
//   relay.Freeze();  // like a host that loses its power: no bytes arrive, and no connection closes
//   relay.Heal();    // new connections work
//
// Threads: the relay runs its own thread. Any thread may call the methods.
#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <string>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace foretoken::testing {

// The network between the two ends, the same for all connections.
struct NetworkConditions {
  absl::Duration delay;         // of every byte, each way
  double bytes_per_second = 0;  // each way, per connection; 0: no limit
  bool drops_requests = false;  // no byte reaches the server
  bool drops_answers = false;   // no byte reaches the client
  bool is_partitioned = false;  // neither, and no connection is accepted
};

class TcpRelay {
 public:
  explicit TcpRelay(int target_port);
  // The same for "127.0.0.1:port".
  explicit TcpRelay(const std::string& target);
  TcpRelay(const TcpRelay&) = delete;
  ~TcpRelay();

  // "127.0.0.1:port"
  const std::string& address() const { return address_; }
  void Set(const NetworkConditions& conditions);
  void Freeze() { Set({.is_partitioned = true}); }
  // Closes every connection. Both ends see it, and new connections work.
  void Cut() { is_cutting_ = true; }
  // A good network again. Connections that lost bytes stay silent: TCP sends lost packets again after pauses that
  // double, so after a long fault they would stay silent for long.
  void Heal() { Set({}); }

 private:
  struct Chunk {
    absl::Time due;
    std::string bytes;
  };
  // One direction of a connection.
  struct Pipe {
    int from = -1, to = -1;
    std::deque<Chunk> chunks;
    size_t num_waiting_bytes = 0;
    double allowance = 0;    // bytes that the rate allows now
    bool is_silent = false;  // bytes may be lost: nothing goes through any more

    bool TakesMore() const;
  };
  struct Connection {
    Pipe requests, answers;
    bool is_closed = false;

    void Close();
  };

  void Run();
  void Accept();
  void Forward(Connection& connection, const NetworkConditions& conditions, absl::Duration passed);
  static bool Read(Pipe& pipe, absl::Time due);
  static bool Write(Pipe& pipe, absl::Time now, const NetworkConditions& conditions, absl::Duration passed);
  NetworkConditions conditions() const;

  const int target_port_;
  int listener_ = -1;
  std::string address_;
  std::list<Connection> connections_;  // of the thread
  mutable absl::Mutex mutex_;
  NetworkConditions conditions_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> is_ending_{false}, is_cutting_{false};
  std::thread thread_;
};

}  // namespace foretoken::testing
