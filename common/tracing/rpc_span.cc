// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/rpc_span.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace foretoken::tracing {
namespace {

// A name of the DNS is shorter. A client may send any text in its place.
constexpr size_t kMaxHostBytes = 256;

struct HostPort {
  std::string host;
  std::optional<int64_t> port;
};

// "10.0.0.1:4711", "%5B::1%5D:4711", "[::1]:4711" or "llm.example" -> host and port.
HostPort SplitHostPort(absl::string_view address) {
  const size_t colon = address.rfind(':');
  int64_t port = 0;
  const bool has_port = colon != absl::string_view::npos && absl::SimpleAtoi(address.substr(colon + 1), &port);
  absl::string_view host = has_port ? address.substr(0, colon) : address;
  if (absl::ConsumePrefix(&host, "%5B") || absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "%5D")) absl::ConsumeSuffix(&host, "]");
  }
  return {.host = std::string(host.substr(0, kMaxHostBytes)), .port = has_port ? std::optional(port) : std::nullopt};
}

HostPort ServerOf(absl::string_view target) {
  const bool is_socket = absl::ConsumePrefix(&target, "unix:");
  // dns:[//SERVER/]NAME, where SERVER is the one that resolves the name.
  if (absl::ConsumePrefix(&target, "dns:") && absl::ConsumePrefix(&target, "//")) {
    target.remove_prefix(std::min(target.size(), target.find('/') + 1));
  }
  const bool is_address = absl::ConsumePrefix(&target, "ipv4:") || absl::ConsumePrefix(&target, "ipv6:");
  const bool are_many = is_address && absl::StrContains(target, ',');
  if (is_socket || are_many) return {.host = std::string(target.substr(0, kMaxHostBytes))};
  return SplitHostPort(target);
}

}  // namespace

Attributes RpcAttributes(const RpcCall& call) {
  Attributes attributes = {{"rpc.system.name", "grpc"}, {"rpc.method", call.method}};
  if (!call.server.empty()) {
    HostPort server = ServerOf(call.server);
    attributes.push_back({"server.address", std::move(server.host)});
    if (server.port.has_value()) attributes.push_back({"server.port", *server.port});
  }
  absl::string_view peer = call.peer;
  if (!absl::ConsumePrefix(&peer, "ipv4:") && !absl::ConsumePrefix(&peer, "ipv6:")) return attributes;
  HostPort other_end = SplitHostPort(peer);
  if (!other_end.port.has_value()) return attributes;
  attributes.push_back({"network.peer.address", std::move(other_end.host)});
  attributes.push_back({"network.peer.port", *other_end.port});
  return attributes;
}

bool IsServersFault(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

void SetRpcStatus(const absl::Status& status, Span& span) {
  const std::string code = absl::StatusCodeToString(status.code());
  span.attributes.push_back({"rpc.response.status_code", code});
  if (status.ok()) return;
  span.attributes.push_back({"error.type", code});
  if (IsServersFault(status.code())) {
    span.error = std::string(status.message());
  } else if (span.kind == SpanKind::kClient) {
    span.error = code;  // the message may quote the request
  }
}

}  // namespace foretoken::tracing
