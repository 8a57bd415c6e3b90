// SPDX-License-Identifier: Apache-2.0
// Makes the spans of one process.
//
//   Tracer tracer(settings, base::SystemRandomBits, [&](Span span) { exporter.Add(std::move(span)); });
//   Span call = tracer.Begin({.name = "foretoken.v1.GenerationService/Generate", .kind = SpanKind::kServer,
//                             .remote_parent = caller});
//   Span queue = tracer.BeginChild(call, "queue");
//   tracer.End(std::move(queue));
//   tracer.End(std::move(call));
//
// A span that is not sampled has a context too, because the services behind this one must learn that the trace is not
// recorded. End drops it. Without an exporter a span has its caller's context, so that a trace of other services goes
// on through this one.
//
// Threads: any. A span belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/tracing/sampler.h"
#include "common/tracing/span.h"

namespace foretoken::tracing {

struct BeginArgs {
  std::string name;
  SpanKind kind = SpanKind::kInternal;
  std::optional<TraceContext> remote_parent = std::nullopt;  // unset: the span begins a trace
  absl::Time begin = absl::Now();
};

class Tracer {
 public:
  using TakeSpan = std::function<void(Span span)>;

  // Records no span.
  Tracer() = default;
  Tracer(Sampler sampler, std::function<uint64_t()> random_bits, TakeSpan take);

  // From here on no context comes in from a caller's headers or goes out to other services.
  void StopPropagation() { propagates_ = false; }
  // The caller's context, from its two headers.
  std::optional<TraceContext> Extract(absl::string_view traceparent, absl::string_view tracestate = {}) const;
  // The traceparent for another service; empty: none.
  std::string Inject(const TraceContext& context) const;

  // False: attributes of the span would be made for nobody.
  bool IsRecorded(const Span& span) const { return is_on() && span.context.is_sampled(); }

  Span Begin(BeginArgs args) const;
  Span BeginChild(const Span& parent, std::string name, absl::Time begin = absl::Now()) const;
  void End(Span span, absl::Time end = absl::Now()) const;

 private:
  bool is_on() const { return take_ != nullptr; }
  SpanId NewSpanId() const;

  bool propagates_ = true;
  Sampler sampler_;
  std::function<uint64_t()> random_bits_;
  TakeSpan take_;
};

}  // namespace foretoken::tracing
