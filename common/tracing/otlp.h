// SPDX-License-Identifier: Apache-2.0
// Spans as OTLP's messages.
#pragma once

#include <span>

#include "common/tracing/span.h"
#include "otlp/traces.pb.h"

namespace foretoken::tracing {

// The spans of one process. Attributes, events and links beyond the limits are counted instead.
otlp::ExportTraceServiceRequest ToOtlp(std::span<const Span> spans, const Attributes& resource,
                                       const SpanLimits& limits);

}  // namespace foretoken::tracing
