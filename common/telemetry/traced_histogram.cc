// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/traced_histogram.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace foretoken::telemetry {

TracedHistogram::TracedHistogram(prometheus::Histogram& histogram, prometheus::Histogram::BucketBoundaries buckets)
    : histogram_(histogram), buckets_(std::move(buckets)), exemplars_(buckets_.size() + 1) {}

void TracedHistogram::Observe(double value, absl::string_view trace_id) {
  histogram_.Observe(value);
  if (trace_id.empty()) return;
  const auto bucket = std::ranges::lower_bound(buckets_, value) - buckets_.begin();  // a bound belongs to its bucket
  absl::MutexLock lock(&mutex_);
  exemplars_[static_cast<size_t>(bucket)] = {.trace_id = std::string(trace_id), .value = value, .time = absl::Now()};
}

std::vector<std::optional<Exemplar>> TracedHistogram::Exemplars() const {
  absl::MutexLock lock(&mutex_);
  return exemplars_;
}

}  // namespace foretoken::telemetry
