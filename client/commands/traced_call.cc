// SPDX-License-Identifier: Apache-2.0
#include "client/commands/traced_call.h"

#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client/commands/connect_flags.h"
#include "common/base/status_macros.h"
#include "common/base/system_random.h"
#include "common/tracing/rpc_span.h"

ABSL_FLAG(bool, trace, false,
          "Print a trace id, and ask every service on the way to record the call's trace; OTEL_* variables say where "
          "the command's own span goes");

namespace foretoken::client {

absl::StatusOr<std::unique_ptr<TracedCall>> TracedCall::FromFlags() {
  std::unique_ptr<TracedCall> trace;
  if (!absl::GetFlag(FLAGS_trace)) return trace;
  FT_ASSIGN_OR_RETURN(const std::string target, TargetFromFlags());
  trace.reset(new TracedCall());
  trace->process_ = tracing::ProcessTracing::Start("foretoken-client", trace->metrics_);
  trace->tracer_ = tracing::Tracer(tracing::Sampler(), base::SystemRandomBits,
                                   [process = trace->process_.get()](tracing::Span span) { process->Export(span); });
  const std::string rpc = absl::StrCat(v1::GenerationService::service_full_name(), "/Generate");
  trace->call_ = trace->tracer_.Begin({.name = rpc, .kind = tracing::SpanKind::kClient, .begin = trace->clock_.Now()});
  trace->call_.attributes = tracing::RpcAttributes({.method = rpc, .server = target});
  return trace;
}

Metadata TracedCall::metadata() const {
  const std::string traceparent = process_->tracer().Inject(call_.context);
  return traceparent.empty() ? Metadata() : Metadata({{"traceparent", traceparent}});
}

void TracedCall::End(const absl::Status& status) {
  tracing::SetRpcStatus(status, call_);
  tracer_.End(call_, clock_.Now());
}

}  // namespace foretoken::client
