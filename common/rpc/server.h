// SPDX-License-Identifier: Apache-2.0
// Serves a Foretoken service: one bootstrap with health checks, reflection, keepalive, limits and a graceful end.
//
//   base::BlockTerminationSignals();  // before any thread exists
//   const ServerOptions options = {.listen_address = "127.0.0.1:50052"};
//   FT_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Start(options, {&service}));
//   server->SetServing(true);
//   server->ServeUntilSignal([&] { service.StopAdmitting(); });
//
// Draining: after SIGTERM or SIGINT, health becomes NOT_SERVING, the server takes no further connection and asks its
// clients to call another one, and stop_admitting is called. A call that crosses that request on its way ends with
// UNAVAILABLE or CANCELLED. After stop_admitting, calls in flight have drain_grace to end. Then they are cancelled, and
// ServeUntilSignal returns. A second signal ends the process at once (common/base/termination_signals.h).
//
// Threads: any may call SetServing and InProcessChannel; only the thread that started the server may call the rest.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/periodic_task.h"
#include "common/rpc/tls.h"
#include "grpcpp/channel.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/channel_arguments.h"

namespace foretoken::rpc {

class Reflection;

// The security of a server's ports.
struct ServerSecurity {
  TlsFiles tls = {};
  bool is_insecure = false;  // the operator accepts plain text on an address that other machines reach
  // HOST:PORT of a second port without TLS, for health checks and reflection; empty: none.
  std::string health_address = {};
};

struct ServerOptions {
  // HOST:PORT; port 0 takes a free one. Unset: only the in-process channel reaches the server.
  std::optional<std::string> listen_address;
  ServerSecurity security = {};
  // The names of the services, for reflection and for health checks. A health check of "" asks for the whole server.
  std::vector<std::string> service_names;
  // A larger message ends its call with RESOURCE_EXHAUSTED, a compressed one of any size with UNIMPLEMENTED.
  int max_receive_bytes = 4 << 20;
  size_t max_memory_bytes = size_t{1} << 30;  // for gRPC's own buffers
  // Peers may ping every 10 s, also idle ones, and the server pings them every 30 s. Gateways and meshes use these
  // numbers.
  absl::Duration keepalive_time = absl::Seconds(30);
  absl::Duration keepalive_timeout = absl::Seconds(10);
  absl::Duration min_ping_interval = absl::Seconds(10);
  // Then the server asks the client for a new connection, which spreads clients over replicas. Calls that run go on, on
  // the old connection, for as long as they take. Unset: a connection may last for ever.
  std::optional<absl::Duration> max_connection_age = std::nullopt;
  absl::Duration drain_grace = absl::Seconds(30);
};

// INVALID_ARGUMENT for TLS files that cannot be used, and for an address that other machines reach if neither TLS nor
// is_insecure is set.
absl::Status CheckSecurity(const std::string& listen_address, const ServerSecurity& security);

class Server {
 public:
  // The services must outlive the server. Health says NOT_SERVING until SetServing.
  // Errors: those of CheckSecurity; INVALID_ARGUMENT for an address without a port; UNAVAILABLE if the address cannot
  // be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services);
  // Opens the same ports with the same certificates, and closes them again. A program calls it before it loads a model
  // for minutes, so a port in use or a bad certificate is reported at once. Try keeps copies of the TLS files,
  // and Start uses them if the files themselves cannot be used by that time. Errors: those of Start.
  static absl::Status Try(const ServerOptions& options);
  // Cancels the calls in flight.
  ~Server();

  // The second port; 0 without one.
  int health_port() const { return health_.number; }
  // The bound port; 0 without a listen address.
  int port() const { return main_.number; }
  // Do not use it in or after a drain: gRPC 1.51 crashes on a call in this process to a server that is closing.
  std::shared_ptr<grpc::Channel> InProcessChannel(const grpc::ChannelArguments& arguments = {});
  // Has no effect once the drain has begun.
  void SetServing(bool serving);

  void Drain(const std::function<void()>& stop_admitting);
  void ServeUntilSignal(const std::function<void()>& stop_admitting);

 private:
  struct Port {
    std::unique_ptr<Reflection> reflection;  // outlives the server
    std::unique_ptr<grpc::Server> server;    // null: there is no such port
    int number = 0;                          // 0: only the in-process channel
  };

  Server(Port main, Port health, std::vector<std::string> service_names, absl::Duration drain_grace);
  static absl::StatusOr<std::unique_ptr<Server>> Open(const ServerOptions& options,
                                                      const std::vector<grpc::Service*>& services);
  static absl::StatusOr<Port> OpenPort(absl::string_view flag, const std::optional<std::string>& address,
                                       const std::shared_ptr<grpc::ServerCredentials>& credentials,
                                       std::vector<std::string> service_names, grpc::ServerBuilder& builder);
  void ForEachHealthService(const std::function<void(grpc::HealthCheckServiceInterface&)>& change);

  Port main_;
  Port health_;
  std::vector<std::string> service_names_;  // with a health of their own
  absl::Duration drain_grace_;
  base::PeriodicTask heap_trim_;
};

}  // namespace foretoken::rpc
