// SPDX-License-Identifier: Apache-2.0
// The tracing of one process, as the OTEL_* variables ask for it (settings.h).
//
//   FT_ASSIGN_OR_RETURN(const std::unique_ptr<ProcessTracing> tracing,
//                       ProcessTracing::Start("foretoken-verifier", metrics));
//   Span span = tracing->tracer().Begin({.name = "load"});
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/telemetry/metrics.h"
#include "common/tracing/span_exporter.h"
#include "common/tracing/tracer.h"

namespace foretoken::tracing {

class ProcessTracing {
 public:
  // Logs where the spans go, and a warning for each variable that cannot be used. The metrics outlive the object.
  // Errors: those of rpc::CheckTls, for the exporter's files.
  static absl::StatusOr<std::unique_ptr<ProcessTracing>> Start(const std::string& service_name,
                                                               telemetry::Metrics& metrics);

  // Lives as long as the object, and nobody may use a copy of it for longer.
  const Tracer& tracer() const { return tracer_; }
  // Sends a span that another tracer made. Drops it if no variable says where spans go.
  void Export(Span span);

 private:
  ProcessTracing() = default;

  std::unique_ptr<SpanExporter> exporter_;  // null: nobody wants the spans
  Tracer tracer_;
};

}  // namespace foretoken::tracing
