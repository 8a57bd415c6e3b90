// SPDX-License-Identifier: Apache-2.0
// OTLP over gRPC.
#pragma once

#include "absl/status/statusor.h"
#include "common/tracing/span_exporter.h"

namespace foretoken::tracing {

// Connects when the first batch is sent. Errors: those of rpc::CheckTls.
absl::StatusOr<SendBatch> MakeGrpcSender(const Endpoint& endpoint);

}  // namespace foretoken::tracing
