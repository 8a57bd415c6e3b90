// SPDX-License-Identifier: Apache-2.0
// Serves a Foretoken service: one bootstrap with health checks, reflection, keepalive, limits and a graceful end.
//
//   BlockTerminationSignals();  // before any thread exists
//   const ServerOptions options = {.listen_address = "0.0.0.0:50052"};
//   FT_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Start(options, {&service}));
//   server->SetServing(true);
//   server->ServeUntilSignal([&] { service.StopAdmitting(); });
//
// Draining: after SIGTERM or SIGINT, health becomes NOT_SERVING, stop_admitting is called, calls in flight have
// drain_grace to end and are then cancelled, and ServeUntilSignal returns. A second signal ends the process at once.
//
// Threads: any may call SetServing and InProcessChannel; only the thread that started the server may call the rest.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/server.h"
#include "grpcpp/support/channel_arguments.h"

namespace foretoken::rpc {

struct ServerOptions {
  // HOST:PORT; port 0 takes a free one. Unset: only the in-process channel reaches the server.
  std::optional<std::string> listen_address;
  std::vector<std::string> service_names;  // names for health checks besides "", the whole server
  // A larger message ends its call with RESOURCE_EXHAUSTED, a compressed one of any size with UNIMPLEMENTED.
  int max_receive_bytes = 4 << 20;
  size_t max_memory_bytes = size_t{1} << 30;  // for gRPC's own buffers
  // Peers may ping every 10 s, also idle ones, and the server pings them every 30 s. Gateways and meshes use these
  // numbers.
  absl::Duration keepalive_time = absl::Seconds(30);
  absl::Duration keepalive_timeout = absl::Seconds(10);
  absl::Duration min_ping_interval = absl::Seconds(10);
  std::optional<absl::Duration> max_connection_age = std::nullopt;  // then clients reconnect, which spreads them over
                                                                    // replicas
  absl::Duration drain_grace = absl::Seconds(30);
};

// Blocks SIGTERM and SIGINT, so that ServeUntilSignal gets them. Call it before the first thread starts: threads
// inherit the mask.
void BlockTerminationSignals();

class Server {
 public:
  // The services must outlive the server. Health says NOT_SERVING until SetServing.
  // Errors: INVALID_ARGUMENT for an address without a port; UNAVAILABLE if the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services);
  // Cancels the calls in flight.
  ~Server();

  // The bound port; 0 without a listen address.
  int port() const { return port_; }
  std::shared_ptr<grpc::Channel> InProcessChannel(const grpc::ChannelArguments& arguments = {});
  // Has no effect once the drain has begun.
  void SetServing(bool serving);

  void Drain(const std::function<void()>& stop_admitting);
  void ServeUntilSignal(const std::function<void()>& stop_admitting);

 private:
  Server(std::unique_ptr<grpc::Server> server, int port, absl::Duration drain_grace);

  std::unique_ptr<grpc::Server> server_;
  int port_;
  absl::Duration drain_grace_;
};

}  // namespace foretoken::rpc
