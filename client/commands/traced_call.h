// SPDX-License-Identifier: Apache-2.0
// The trace of one command's call, with --trace. The command begins the trace and asks all services on the way to
// record it. The command's own span goes to the collector that the OTEL_* variables name, if they name one.
//
//   FT_ASSIGN_OR_RETURN(std::unique_ptr<TracedCall> trace, TracedCall::FromFlags());  // null without --trace
//   FT_ASSIGN_OR_RETURN(GenerationClient client, ConnectFromFlags(trace->metadata()));
//   trace->End(status);
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/generation_client.h"
#include "common/telemetry/metrics.h"
#include "common/tracing/process_tracing.h"
#include "common/tracing/span_clock.h"

namespace foretoken::client {

class TracedCall {
 public:
  // Null without --trace. INVALID_ARGUMENT for a --target without an address.
  static absl::StatusOr<std::unique_ptr<TracedCall>> FromFlags();

  Metadata metadata() const;
  // 32 hexadecimal digits.
  std::string trace_id() const { return tracing::FormatTraceId(call_.context.trace_id); }
  void End(const absl::Status& status);

 private:
  TracedCall() = default;

  telemetry::Metrics metrics_;
  std::unique_ptr<tracing::ProcessTracing> process_;
  tracing::Tracer tracer_;
  const tracing::SpanClock clock_;
  tracing::Span call_;
};

}  // namespace foretoken::client
