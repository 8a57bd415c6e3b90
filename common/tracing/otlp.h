// SPDX-License-Identifier: Apache-2.0
// Spans as OTLP's messages.
#pragma once

#include <map>
#include <span>
#include <string>

#include "common/tracing/span.h"
#include "otlp/traces.pb.h"

namespace foretoken::tracing {

// Encodes a span as an otlp::Span. Attributes and links beyond the limits are counted instead, and longer texts in
// attributes are cut. Bytes of texts that are not UTF-8 become U+FFFD.
std::string EncodeSpan(const Span& span, const SpanLimits& limits);

// A request with encoded spans of one process; `resource` are the process's own attributes. Leaves the spans empty.
otlp::ExportTraceServiceRequest MakeRequest(std::span<std::string> spans,
                                            const std::map<std::string, std::string>& resource);

// What an exporter calls itself.
std::string UserAgent();

}  // namespace foretoken::tracing
