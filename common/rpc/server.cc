// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/server.h"

#include <malloc.h>
#include <string.h>
#include <sys/resource.h>

#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/base/steady_clock.h"
#include "common/base/termination_signals.h"
#include "common/rpc/compression.h"
#include "common/rpc/reflection.h"
#include "grpc/grpc.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "spdlog/spdlog.h"

namespace foretoken::rpc {
namespace {

// Bounds on what one connection can cost before a service sees anything of it.
struct ConnectionBounds {
  int max_streams = 1024;  // a client's further calls wait at the client
  // Of one call. More ends all calls of the connection, which a proxy shares among its clients: this is more than
  // proxies let pass by default.
  int max_metadata_bytes = 64 << 10;
};
constexpr ConnectionBounds kHealthBounds = {.max_streams = 16, .max_metadata_bytes = 16 << 10};  // a probe has one call
constexpr absl::Duration kHandshakeTimeout = absl::Seconds(10);

// Ended calls leave holes in the heap: gigabytes after a connection that opens and resets calls without end, or sends
// much metadata, and many after the JSON of a large conversation. The allocator would keep them for good, and a control
// group would count them. To give them back takes 0.1 ms where there are few, and 17 ms for one conversation at most.
constexpr absl::Duration kTrimPeriod = absl::Seconds(2);

// Every connection takes a descriptor, and gRPC 1.51 never accepts another connection once none is left. Shells and
// service managers often set the soft limit to 1,024 and leave the hard one much higher.
void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int Milliseconds(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

void Configure(const ServerOptions& options, grpc::ServerBuilder& builder, const ConnectionBounds& bounds = {}) {
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  for (const auto& [name, value] : kNoCompression) builder.AddChannelArgument(name, value);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, bounds.max_streams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, bounds.max_metadata_bytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(kHandshakeTimeout));
  builder.SetResourceQuota(grpc::ResourceQuota("foretoken").Resize(options.max_memory_bytes));
  // Otherwise two servers on one port would each get some of the connections; the second server must fail instead.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_time));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(options.keepalive_timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Milliseconds(options.min_ping_interval));
  if (options.max_connection_age.has_value()) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(*options.max_connection_age));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, std::numeric_limits<int>::max());  // no limit
  }
}

absl::Status CheckHasPort(absl::string_view flag, const std::string& address) {
  if (base::PortOf(address).has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": expected HOST:PORT with a port of 0 to 65535, got '", address, "'"));
}

// Whether the address may be served with this, whatever the files hold.
absl::Status CheckEncrypted(const std::string& listen_address, const ServerSecurity& security) {
  if (security.tls.is_used() || security.is_insecure || IsLoopback(listen_address)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--listen: other machines reach '", listen_address,
                   "': expected --tls_certificate and --tls_key, or --insecure to serve without encryption"));
}

absl::Status CannotBind(absl::string_view flag, const std::string& address) {
  return absl::UnavailableError(
      absl::StrCat(flag, ": cannot bind '", address, "': the address is in use, not local or not permitted"));
}

}  // namespace

absl::Status CheckSecurity(const std::string& listen_address, const ServerSecurity& security) {
  FT_RETURN_IF_ERROR(CheckEncrypted(listen_address, security));
  return CheckTls(security.tls);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<grpc::Service*>& services) {
  absl::StatusOr<std::unique_ptr<Server>> server = Open(options, services);
  if (server.ok() && (*server)->health_port() != 0) spdlog::info("health checks on port {}", (*server)->health_port());
  return server;
}

absl::Status Server::Try(const ServerOptions& options) { return Open(options, {}).status(); }

absl::StatusOr<std::unique_ptr<Server>> Server::Open(const ServerOptions& options,
                                                     const std::vector<grpc::Service*>& services) {
  RaiseDescriptorLimit();
  // The switch belongs to the library, and applies to every server built afterwards.
  grpc::EnableDefaultHealthCheckService(true);
  FT_RETURN_IF_ERROR(CheckEncrypted(options.listen_address.value_or("localhost:0"), options.security));
  FT_ASSIGN_OR_RETURN(const auto credentials, ServerCredentials(options.security.tls));
  grpc::ServerBuilder builder;
  Configure(options, builder);
  for (grpc::Service* service : services) builder.RegisterService(service);
  FT_ASSIGN_OR_RETURN(Port main,
                      OpenPort("listen", options.listen_address, credentials, options.service_names, builder));
  Port health;
  if (const std::string& address = options.security.health_address; !address.empty()) {
    grpc::ServerBuilder health_builder;
    Configure({.max_receive_bytes = 1 << 10, .max_memory_bytes = size_t{16} << 20}, health_builder, kHealthBounds);
    FT_ASSIGN_OR_RETURN(health,
                        OpenPort("health_listen", address, grpc::InsecureServerCredentials(), {}, health_builder));
  }
  auto started = std::unique_ptr<Server>(
      new Server(std::move(main), std::move(health), options.service_names, options.drain_grace));
  started->SetServing(false);
  return started;
}

absl::StatusOr<Server::Port> Server::OpenPort(absl::string_view flag, const std::optional<std::string>& address,
                                              const std::shared_ptr<grpc::ServerCredentials>& credentials,
                                              std::vector<std::string> service_names, grpc::ServerBuilder& builder) {
  Port port = {.reflection = std::make_unique<Reflection>(std::move(service_names))};
  builder.RegisterService(port.reflection.get());
  if (address.has_value()) {
    FT_RETURN_IF_ERROR(CheckHasPort(flag, *address));
    builder.AddListeningPort(*address, credentials, &port.number);
  }
  port.server = builder.BuildAndStart();
  if (port.server == nullptr || (address.has_value() && port.number <= 0)) {
    return CannotBind(flag, address.value_or("in process"));
  }
  return port;
}

Server::Server(Port main, Port health, std::vector<std::string> service_names, absl::Duration drain_grace)
    : main_(std::move(main)),
      health_(std::move(health)),
      service_names_(std::move(service_names)),
      drain_grace_(drain_grace),
      heap_trim_(kTrimPeriod, [] { malloc_trim(0); }) {}

Server::~Server() {
  main_.server->Shutdown(absl::ToChronoTime(absl::Now()));
  if (health_.server != nullptr) health_.server->Shutdown(absl::ToChronoTime(absl::Now()));
}

void Server::ForEachHealthService(const std::function<void(grpc::HealthCheckServiceInterface&)>& change) {
  change(*main_.server->GetHealthCheckService());
  if (health_.server != nullptr) change(*health_.server->GetHealthCheckService());
}

std::shared_ptr<grpc::Channel> Server::InProcessChannel(const grpc::ChannelArguments& arguments) {
  return main_.server->InProcessChannel(arguments);
}

// gRPC's call without a name would set every name that anybody watches, whether there is such a service or not.
void Server::SetServing(bool serving) {
  ForEachHealthService([&](auto& service) {
    service.SetServingStatus("", serving);
    for (const std::string& name : service_names_) service.SetServingStatus(name, serving);
  });
}

void Server::Drain(const std::function<void()>& stop_admitting) {
  // Reports NOT_SERVING, and ignores every later SetServing.
  ForEachHealthService([](auto& service) { service.Shutdown(); });
  // The server first tells every client (HTTP/2 GOAWAY), so that their next calls go to another server. Running calls
  // go on.
  std::mutex mutex;
  std::condition_variable closed;
  bool is_closed = false;
  std::thread closing([&] {
    main_.server->Shutdown(std::chrono::system_clock::time_point::max());
    const std::lock_guard lock(mutex);
    is_closed = true;
    closed.notify_one();
  });
  stop_admitting();
  std::unique_lock lock(mutex);
  const bool is_in_time = WaitAtMost(drain_grace_, closed, lock, [&] { return is_closed; });
  lock.unlock();
  // Calls that nobody ends, such as health watches, are cancelled.
  if (!is_in_time) grpc_server_cancel_all_calls(main_.server->c_server());
  closing.join();
}

void Server::ServeUntilSignal(const std::function<void()>& stop_admitting) {
  spdlog::info("draining after {}", strsignal(base::AwaitTerminationSignal()));
  Drain(stop_admitting);
}

}  // namespace foretoken::rpc
