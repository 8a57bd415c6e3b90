// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/server.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/compression.h"
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

int Milliseconds(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

void Configure(const ServerOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  for (const auto& [name, value] : kNoCompression) builder.AddChannelArgument(name, value);
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
  }
}

}  // namespace

void BlockTerminationSignals() {
  const sigset_t signals = TerminationSignals();
  FT_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<grpc::Service*>& services) {
  // Both switches belong to the library, and apply to every server built afterwards.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  Configure(options, builder);
  for (grpc::Service* service : services) builder.RegisterService(service);
  int port = 0;
  if (options.listen_address.has_value()) {
    if (options.listen_address->rfind(':') == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("listen: expected HOST:PORT, got '", *options.listen_address, "'"));
    }
    builder.AddListeningPort(*options.listen_address, grpc::InsecureServerCredentials(), &port);
  }
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || (options.listen_address.has_value() && port <= 0)) {
    return absl::UnavailableError(absl::StrCat("listen: cannot bind '", options.listen_address.value_or("in process"),
                                               "': the address is in use, not local or not permitted"));
  }
  auto started = std::unique_ptr<Server>(new Server(std::move(server), port, options.drain_grace));
  // SetServing sets all known names, so a name must be made known before.
  for (const std::string& name : options.service_names) {
    started->server_->GetHealthCheckService()->SetServingStatus(name, false);
  }
  started->SetServing(false);
  return started;
}

Server::Server(std::unique_ptr<grpc::Server> server, int port, absl::Duration drain_grace)
    : server_(std::move(server)), port_(port), drain_grace_(drain_grace) {}

Server::~Server() { server_->Shutdown(absl::ToChronoTime(absl::Now())); }

std::shared_ptr<grpc::Channel> Server::InProcessChannel(const grpc::ChannelArguments& arguments) {
  return server_->InProcessChannel(arguments);
}

void Server::SetServing(bool serving) { server_->GetHealthCheckService()->SetServingStatus(serving); }

void Server::Drain(const std::function<void()>& stop_admitting) {
  server_->GetHealthCheckService()->Shutdown();  // reports NOT_SERVING, and ignores every later SetServing
  stop_admitting();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + drain_grace_));
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
