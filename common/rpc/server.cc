// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/server.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/base/steady_clock.h"
#include "common/rpc/compression.h"
#include "grpc/grpc.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_builder.h"
#include "kernels/check.h"
#include "spdlog/spdlog.h"

namespace foretoken::rpc {
namespace {

sigset_t TerminationSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Bounds on what one connection can cost before a service sees anything of it.
constexpr int kMaxStreamsPerConnection = 1024;  // a client's further calls wait at the client
constexpr int kMaxMetadataBytes = 16 << 10;     // of one call; a call with more ends with RESOURCE_EXHAUSTED
// gRPC's reflection has a thread for each of its calls; our services have none. A call beyond it ends with
// RESOURCE_EXHAUSTED.
constexpr int kMaxReflectionThreads = 16;
constexpr absl::Duration kHandshakeTimeout = absl::Seconds(10);

int Milliseconds(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

void Configure(const ServerOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  for (const auto& [name, value] : kNoCompression) builder.AddChannelArgument(name, value);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(kHandshakeTimeout));
  builder.SetResourceQuota(
      grpc::ResourceQuota("foretoken").Resize(options.max_memory_bytes).SetMaxThreads(kMaxReflectionThreads));
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);  // each needs a thread of the quota
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
  if (address.rfind(':') != std::string::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": expected HOST:PORT, got '", address, "'"));
}

absl::Status CannotBind(absl::string_view flag, const std::string& address) {
  return absl::UnavailableError(
      absl::StrCat(flag, ": cannot bind '", address, "': the address is in use, not local or not permitted"));
}

}  // namespace

absl::Status CheckSecurity(const std::string& listen_address, const ServerSecurity& security) {
  if (!security.tls.is_used() && !security.is_insecure && !IsLoopback(listen_address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen: other machines reach '", listen_address,
                     "': expected --tls_certificate and --tls_key, or --insecure to serve without encryption"));
  }
  return CheckTls(security.tls);
}

void BlockTerminationSignals() {
  const sigset_t signals = TerminationSignals();
  FT_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<grpc::Service*>& services) {
  // Both switches belong to the library, and apply to every server built afterwards.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  FT_RETURN_IF_ERROR(CheckSecurity(options.listen_address.value_or("localhost:0"), options.security));
  FT_ASSIGN_OR_RETURN(const auto credentials, ServerCredentials(options.security.tls));
  grpc::ServerBuilder builder;
  Configure(options, builder);
  for (grpc::Service* service : services) builder.RegisterService(service);
  int port = 0;
  if (options.listen_address.has_value()) {
    FT_RETURN_IF_ERROR(CheckHasPort("listen", *options.listen_address));
    builder.AddListeningPort(*options.listen_address, credentials, &port);
  }
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || (options.listen_address.has_value() && port <= 0)) {
    return CannotBind("listen", options.listen_address.value_or("in process"));
  }
  int health_port = 0;
  std::unique_ptr<grpc::Server> health;
  if (const std::string& address = options.security.health_address; !address.empty()) {
    FT_RETURN_IF_ERROR(CheckHasPort("health_listen", address));
    grpc::ServerBuilder health_builder;
    Configure({.max_receive_bytes = 1 << 10, .max_memory_bytes = size_t{16} << 20}, health_builder);
    health_builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &health_port);
    health = health_builder.BuildAndStart();
    if (health == nullptr || health_port <= 0) return CannotBind("health_listen", address);
  }
  auto started = std::unique_ptr<Server>(new Server(std::move(server), std::move(health), port, options.drain_grace));
  started->health_port_ = health_port;
  if (health_port != 0) spdlog::info("health checks on port {}", health_port);
  // SetServing sets all known names, so a name must be made known before.
  for (const std::string& name : options.service_names) {
    started->ForEachHealthService([&](auto& service) { service.SetServingStatus(name, false); });
  }
  started->SetServing(false);
  return started;
}

Server::Server(std::unique_ptr<grpc::Server> server, std::unique_ptr<grpc::Server> health, int port,
               absl::Duration drain_grace)
    : server_(std::move(server)), health_(std::move(health)), port_(port), drain_grace_(drain_grace) {}

Server::~Server() {
  server_->Shutdown(absl::ToChronoTime(absl::Now()));
  if (health_ != nullptr) health_->Shutdown(absl::ToChronoTime(absl::Now()));
}

void Server::ForEachHealthService(const std::function<void(grpc::HealthCheckServiceInterface&)>& change) {
  change(*server_->GetHealthCheckService());
  if (health_ != nullptr) change(*health_->GetHealthCheckService());
}

std::shared_ptr<grpc::Channel> Server::InProcessChannel(const grpc::ChannelArguments& arguments) {
  return server_->InProcessChannel(arguments);
}

void Server::SetServing(bool serving) {
  ForEachHealthService([serving](auto& service) { service.SetServingStatus(serving); });
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
    server_->Shutdown(std::chrono::system_clock::time_point::max());
    const std::lock_guard lock(mutex);
    is_closed = true;
    closed.notify_one();
  });
  stop_admitting();
  std::unique_lock lock(mutex);
  const bool is_in_time = WaitAtMost(drain_grace_, closed, lock, [&] { return is_closed; });
  lock.unlock();
  // Calls that nobody ends, such as health watches, are cancelled.
  if (!is_in_time) grpc_server_cancel_all_calls(server_->c_server());
  closing.join();
}

void Server::ServeUntilSignal(const std::function<void()>& stop_admitting) {
  const sigset_t signals = TerminationSignals();
  int signal = 0;
  FT_CHECK(sigwait(&signals, &signal) == 0);
  spdlog::info("draining after {}", strsignal(signal));
  // From here on the default applies: the next signal ends the process.
  FT_CHECK(pthread_sigmask(SIG_UNBLOCK, &signals, nullptr) == 0);
  Drain(stop_admitting);
}

}  // namespace foretoken::rpc
