// SPDX-License-Identifier: Apache-2.0
// The tracing of one process, as the OTEL_* variables ask for it (settings.h).
//
//   const std::unique_ptr<ProcessTracing> tracing = ProcessTracing::Start("foretoken-verifier", metrics);
//   Span span = tracing->tracer().Begin({.name = "load"});
#pragma once

#include <memory>
#include <string>

#include "common/telemetry/metrics.h"
#include "common/tracing/span_exporter.h"
#include "common/tracing/tracer.h"

namespace foretoken::tracing {

class ProcessTracing {
 public:
  // Logs where the spans go, and a warning for each variable that cannot be used. Sends nothing to an https:// address
  // if its certificates and keys cannot be used. The metrics outlive the object.
  static std::unique_ptr<ProcessTracing> Start(const std::string& service_name, telemetry::Metrics& metrics);

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
