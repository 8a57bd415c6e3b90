// SPDX-License-Identifier: Apache-2.0
// How a Foretoken service is served: one bootstrap with health checking, reflection, keepalive, limits and a graceful
// end.
//
//   BlockTerminationSignals();  // before any thread exists
//   const ServerOptions options = {.listen_address = "0.0.0.0:50052"};
//   FT_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Start(options, {&service}));
//   server->SetServing(true);
//   server->ServeUntilSignal([&] { service.StopAdmitting(); });
//
// Draining: SIGTERM or SIGINT -> health NOT_SERVING -> stop_admitting -> calls in flight get drain_grace to end, then
// are cancelled -> return. A second signal ends the process at once.
//
// Threads: SetServing and InProcessChannel from any thread; the rest from the one that started the server.
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
  // HOST:PORT; port 0 takes a free one. Without it only the in-process channel reaches the server.
  std::optional<std::string> listen_address;
  std::vector<std::string> service_names;  // what health checks may ask for besides "", the whole server
  // Larger messages end their call with RESOURCE_EXHAUSTED, compressed ones of any size with UNIMPLEMENTED.
  int max_receive_bytes = 4 << 20;
  size_t max_memory_bytes = size_t{1} << 30;  // of gRPC's own buffers
  // Peers may ping every 10 s, idle ones too, and are pinged every 30 s: the numbers that gateways and meshes dial
  // with.
  absl::Duration keepalive_time = absl::Seconds(30);
  absl::Duration keepalive_timeout = absl::Seconds(10);
  absl::Duration min_ping_interval = absl::Seconds(10);
  std::optional<absl::Duration> max_connection_age = std::nullopt;  // then clients reconnect, to spread over replicas
  absl::Duration drain_grace = absl::Seconds(30);
};

// Keeps SIGTERM and SIGINT for ServeUntilSignal. Call it before the first thread starts: threads inherit the mask.
void BlockTerminationSignals();

class Server {
 public:
  // The services outlive the server. Health says NOT_SERVING until SetServing.
  // Errors: INVALID_ARGUMENT for an address without a port, UNAVAILABLE when the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services);
  // Cancels what is in flight.
  ~Server();

  // The bound port; 0 without a listen address.
  int port() const { return port_; }
  std::shared_ptr<grpc::Channel> InProcessChannel(const grpc::ChannelArguments& arguments = {});
  // Without effect once the drain has begun.
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
