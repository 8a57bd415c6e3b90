// SPDX-License-Identifier: Apache-2.0
// Prometheus metrics: a registry that makes counters, gauges and histograms.
//
//   Metrics metrics;
//   prometheus::Counter& trees = metrics.AddCounter("foretoken_proposer_sent_trees_total", "Trees sent.");
//   trees.Increment();
//
// Names are foretoken_..., with the unit as suffix, and _total on counters.
// Threads: any. The references that Add returns live as long as the registry.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/telemetry/traced_histogram.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"

namespace foretoken::telemetry {

// The exemplars of histograms without labels, by the histogram's name.
using ExemplarsByName = std::map<std::string, std::vector<std::optional<Exemplar>>>;

class Metrics {
 public:
  // The same name and labels give the same metric.
  prometheus::Counter& AddCounter(const std::string& name, const std::string& help,
                                  const prometheus::Labels& labels = {});
  prometheus::Gauge& AddGauge(const std::string& name, const std::string& help, const prometheus::Labels& labels = {});
  prometheus::Histogram& AddHistogram(const std::string& name, const std::string& help,
                                      const prometheus::Histogram::BucketBoundaries& buckets,
                                      const prometheus::Labels& labels = {});
  TracedHistogram& AddTracedHistogram(const std::string& name, const std::string& help,
                                      const prometheus::Histogram::BucketBoundaries& buckets);

  prometheus::Registry& registry() { return registry_; }
  std::vector<prometheus::MetricFamily> Collect() const { return registry_.Collect(); }
  ExemplarsByName Exemplars() const;

 private:
  prometheus::Registry registry_;
  mutable absl::Mutex mutex_;
  std::map<std::string, TracedHistogram> traced_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace foretoken::telemetry
