// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/tracer.h"

#include <bit>
#include <utility>

namespace foretoken::tracing {
namespace {

// An id of zeros would be no id.
uint64_t NotZero(uint64_t bits) { return bits == 0 ? 1 : bits; }

}  // namespace

Tracer::Tracer(Sampler sampler, std::function<uint64_t()> random_bits, TakeSpan take)
    : sampler_(std::move(sampler)), random_bits_(std::move(random_bits)), take_(std::move(take)) {}

std::optional<TraceContext> Tracer::Extract(absl::string_view traceparent, absl::string_view tracestate) const {
  return propagates_ ? ParseTraceContext(traceparent, tracestate) : std::nullopt;
}

std::string Tracer::Inject(const TraceContext& context) const {
  return propagates_ ? FormatTraceparent(context) : std::string();
}

SpanId Tracer::NewSpanId() const { return std::bit_cast<SpanId>(NotZero(random_bits_())); }

Span Tracer::Begin(BeginArgs args) const {
  Span span = {.name = std::move(args.name), .kind = args.kind, .begin = args.begin};
  if (!is_on()) {
    span.context = args.remote_parent.value_or(TraceContext());
    return span;
  }
  if (args.remote_parent.has_value()) {
    span.context = *args.remote_parent;
    span.parent = args.remote_parent->span_id;
    span.has_remote_parent = true;
  } else {
    span.context.trace_id = std::bit_cast<TraceId>(std::array{NotZero(random_bits_()), random_bits_()});
    span.context.flags = TraceContext::kRandom;
  }
  span.context.span_id = NewSpanId();
  const bool is_sampled = sampler_.Samples(args.remote_parent, span.context.trace_id);
  span.context.flags =
      static_cast<uint8_t>((span.context.flags & ~TraceContext::kSampled) | (is_sampled ? TraceContext::kSampled : 0));
  return span;
}

Span Tracer::BeginChild(const Span& parent, std::string name, absl::Time begin) const {
  if (!is_on()) return {.context = parent.context, .name = std::move(name), .begin = begin};
  Span span = {.context = parent.context, .parent = parent.context.span_id, .name = std::move(name), .begin = begin};
  span.context.span_id = NewSpanId();
  return span;
}

void Tracer::End(Span span, absl::Time end) const {
  if (!IsRecorded(span)) return;
  span.end = end;
  take_(std::move(span));
}

}  // namespace foretoken::tracing
