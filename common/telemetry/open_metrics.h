// SPDX-License-Identifier: Apache-2.0
// The OpenMetrics text format. Prometheus asks for it where it can, and it alone carries exemplars:
//
//   # HELP foretoken_queue_wait_seconds Time in the queue.
//   # TYPE foretoken_queue_wait_seconds histogram
//   foretoken_queue_wait_seconds_bucket{le="1.0"} 7 # {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"} 0.4 1795408800.250
//
// Prometheus's own text format has the same sample lines, but for exemplars and for the bounds of buckets: it writes 1
// for 1.0.
// Source: OpenMetrics 1.0. https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md
#pragma once

#include <string>
#include <vector>

#include "common/telemetry/metrics.h"
#include "prometheus/metric_family.h"

namespace foretoken::telemetry {

inline constexpr char kOpenMetricsType[] = "application/openmetrics-text";

// Counters, gauges and histograms; families of other types are left out. Names of counters end in _total.
std::string OpenMetricsPage(const std::vector<prometheus::MetricFamily>& families, const ExemplarsByName& exemplars);

}  // namespace foretoken::telemetry
