// SPDX-License-Identifier: Apache-2.0
// A histogram that remembers, for every bucket, the newest value that belongs to a recorded trace. Such a value is
// called an exemplar: a dashboard shows it as a point that leads from a slow bucket to the trace of a slow request.
//
//   TracedHistogram& wait = metrics.AddTracedHistogram("foretoken_queue_wait_seconds", "Time in the queue.", {.1, 1});
//   wait.Observe(0.3);            // no trace
//   wait.Observe(0.4, trace_id);  // the exemplar of the bucket up to 1
//
// Threads: any.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "prometheus/histogram.h"

namespace foretoken::telemetry {

struct Exemplar {
  std::string trace_id;  // 32 hexadecimal digits
  double value = 0;
  absl::Time time;
};

class TracedHistogram {
 public:
  // `histogram` has these buckets and outlives this.
  TracedHistogram(prometheus::Histogram& histogram, prometheus::Histogram::BucketBoundaries buckets);

  // An empty `trace_id`: the value belongs to no recorded trace.
  void Observe(double value, absl::string_view trace_id = {});
  // One place per bucket, the one without a bound last. Unset: no traced value fell into the bucket.
  std::vector<std::optional<Exemplar>> Exemplars() const;

 private:
  prometheus::Histogram& histogram_;
  const prometheus::Histogram::BucketBoundaries buckets_;
  mutable absl::Mutex mutex_;
  std::vector<std::optional<Exemplar>> exemplars_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace foretoken::telemetry
