// SPDX-License-Identifier: Apache-2.0
// Decides whether a trace is recorded. The decision is made once, where the trace begins, and travels in the trace
// context, so that a trace is recorded in all services or in none.
//
//   FT_ASSIGN_OR_RETURN(const Sampler sampler, Sampler::Parse("parentbased_traceidratio", "0.05"));
//   const bool is_sampled = sampler.Samples(caller, trace_id);
//
// Source: OpenTelemetry specification, "Sampling". A trace is sampled if its id's last 7 bytes, which W3C Trace Context
// defines as the random ones, are at least the threshold. So a service with a lower ratio samples a part of the traces
// of a service with a higher ratio.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tracing/trace_context.h"

namespace foretoken::tracing {

class Sampler {
 public:
  // Samples every trace that begins here, and every trace that the caller samples.
  Sampler() = default;
  // `name` is a value of OTEL_TRACES_SAMPLER: always_on, always_off, traceidratio, or one of these after parentbased_.
  // `argument` is the ratio, 0 to 1; empty: 1. Other samplers ignore it.
  // Errors: INVALID_ARGUMENT.
  static absl::StatusOr<Sampler> Parse(absl::string_view name, absl::string_view argument);

  bool Samples(const std::optional<TraceContext>& caller, const TraceId& trace_id) const;

 private:
  bool follows_caller_ = true;
  uint64_t threshold_ = 0;  // 2^56: no trace
};

}  // namespace foretoken::tracing
