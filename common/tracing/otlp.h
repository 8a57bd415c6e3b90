// SPDX-License-Identifier: Apache-2.0
// Spans as OTLP's messages.
#pragma once

#include <map>
#include <span>
#include <string>

#include "common/tracing/span.h"
#include "otlp/traces.pb.h"

namespace foretoken::tracing {

// Fills an empty request with the spans of one process; `resource` are the process's own attributes. A span's
// attributes and links beyond the limits are counted instead, and longer texts in attributes are cut. Bytes of texts
// that are not UTF-8 become U+FFFD.
void ToOtlp(std::span<const Span> spans, const std::map<std::string, std::string>& resource, const SpanLimits& limits,
            otlp::ExportTraceServiceRequest* request);

// What an exporter calls itself.
std::string UserAgent();

}  // namespace foretoken::tracing
