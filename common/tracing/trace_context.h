// SPDX-License-Identifier: Apache-2.0
// The W3C trace context: the identity that a request carries from service to service, so that the spans of all of them
// form one trace.
//
//   const std::optional<TraceContext> caller = ParseTraceContext(traceparent, tracestate);
//   metadata["traceparent"] = FormatTraceparent(span.context);
//
// Source: W3C Trace Context, Level 2. https://www.w3.org/TR/trace-context-2/
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::tracing {

using TraceId = std::array<uint8_t, 16>;  // not all zero
using SpanId = std::array<uint8_t, 8>;    // not all zero

struct TraceContext {
  static constexpr uint8_t kSampled = 1;  // the caller records this trace
  static constexpr uint8_t kRandom = 2;   // the low 7 bytes of the trace id are random

  TraceId trace_id{};
  SpanId span_id{};
  uint8_t flags = 0;
  std::string state;  // the tracestate header as it came

  // False: the context names no trace.
  bool is_set() const { return trace_id != TraceId{}; }
  bool is_sampled() const { return (flags & kSampled) != 0; }
  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

inline constexpr size_t kMaxTracestateBytes = 512;

// Reads the two headers. Unset if the traceparent is missing or malformed. A tracestate that is malformed or longer
// than kMaxTracestateBytes is left out: the trace goes on without it.
std::optional<TraceContext> ParseTraceContext(absl::string_view traceparent, absl::string_view tracestate = {});

// Version 00, 55 characters. Empty for a context that names no trace.
std::string FormatTraceparent(const TraceContext& context);

// 32 lower-case hexadecimal digits.
std::string FormatTraceId(const TraceId& trace_id);

}  // namespace foretoken::tracing
