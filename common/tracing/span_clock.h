// SPDX-License-Identifier: Apache-2.0
// The times of spans that belong together. A span shows the system's time. If somebody sets the system's clock while
// spans are open, their lengths and their order must stay right, so the clock looks at the system's time once and
// follows the steady clock from then on.
//
//   const SpanClock clock;
//   Span call = tracer.Begin({.name = "p.S/M", .begin = clock.Now()});
//   tracer.End(tracer.BeginChild(call, "queue", call.begin), clock.Wall(first_step));  // a time of SteadyNow
//   tracer.End(std::move(call), clock.Now());
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/steady_clock.h"

namespace foretoken::tracing {

class SpanClock {
 public:
  absl::Time Wall(absl::Time steady) const { return steady + steady_to_wall_; }
  absl::Time Now() const { return Wall(SteadyNow()); }

 private:
  absl::Duration steady_to_wall_ = absl::Now() - SteadyNow();
};

}  // namespace foretoken::tracing
