// SPDX-License-Identifier: Apache-2.0
// OTLP over HTTP, with binary protobuf.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/tracing/span_exporter.h"

namespace foretoken::tracing {

// Connects when the first batch is sent. Errors: those of rpc::CheckTls, for an https:// address.
absl::StatusOr<SendBatch> MakeHttpSender(const Endpoint& endpoint);

// The time that a Retry-After header says: seconds, or a date of HTTP. Unset if it says neither.
std::optional<absl::Duration> ParseRetryAfter(const std::string& value, absl::Time now);

}  // namespace foretoken::tracing
