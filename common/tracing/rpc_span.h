// SPDX-License-Identifier: Apache-2.0
// What the span of a remote call says of the call, at the client and at the server.
//
//   Span span = tracer.Begin({.name = call.method, .kind = SpanKind::kServer, .remote_parent = caller});
//   span.attributes = RpcAttributes(call);
//   SetRpcStatus(status, span);
//   tracer.End(std::move(span));
//
// Source: OpenTelemetry's semantic conventions for RPC and gRPC.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/tracing/span.h"

namespace foretoken::tracing {

struct RpcCall {
  std::string method;       // PACKAGE.SERVICE/METHOD
  std::string server = {};  // as the client names it: HOST:PORT, HOST, or a target of gRPC such as dns:///HOST:PORT
  std::string peer = {};    // the other end, as gRPC names it: ipv4:HOST:PORT; others, such as unix:, are left out
};

// The server's name is cut at 256 bytes.
Attributes RpcAttributes(const RpcCall& call);

// The convention's rule for servers: a status that the client caused is no fault of the server.
bool IsServersFault(absl::StatusCode code);

// A client's span is an error with any status but OK. A server's span is one only if the fault is the server's. Only a
// server's fault is told in its own words: other messages may quote the request, whose texts no trace has.
void SetRpcStatus(const absl::Status& status, Span& span);

}  // namespace foretoken::tracing
