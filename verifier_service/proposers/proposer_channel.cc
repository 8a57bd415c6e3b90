// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/proposers/proposer_channel.h"

#include "common/base/host_port.h"
#include "common/rpc/compression.h"

namespace foretoken::verifier {

std::shared_ptr<grpc::Channel> MakeProposerChannel(const std::string& address, const std::string& dns_name,
                                                   const ProposerPoolOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(options.max_message_bytes);
  for (const auto& [name, value] : rpc::kNoCompression) arguments.SetInt(name, value);
  // The pool has its own backoff, so the channel retries whenever the pool does.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(options.connect_timeout)));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // `http_proxy` may be set for other parts of the process
  // A stream without work is silent, so silence alone does not show that the host is down. Keepalive pings do. gRPC
  // sends fewer pings if the server objects to their rate.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(absl::ToInt64Milliseconds(options.keepalive_time)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(options.keepalive_timeout)));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // 0: no limit
  if (!dns_name.empty()) arguments.SetSslTargetNameOverride(std::string(base::HostOf(dns_name)));
  return grpc::CreateCustomChannel(address, options.credentials, arguments);
}

}  // namespace foretoken::verifier
