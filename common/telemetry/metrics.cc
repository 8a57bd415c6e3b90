// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/metrics.h"

namespace foretoken::telemetry {

prometheus::Counter& Metrics::AddCounter(const std::string& name, const std::string& help,
                                         const prometheus::Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry_).Add(labels);
}

prometheus::Gauge& Metrics::AddGauge(const std::string& name, const std::string& help,
                                     const prometheus::Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry_).Add(labels);
}

prometheus::Histogram& Metrics::AddHistogram(const std::string& name, const std::string& help,
                                             const prometheus::Histogram::BucketBoundaries& buckets,
                                             const prometheus::Labels& labels) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry_).Add(labels, buckets);
}

TracedHistogram& Metrics::AddTracedHistogram(const std::string& name, const std::string& help,
                                             const prometheus::Histogram::BucketBoundaries& buckets) {
  prometheus::Histogram& histogram = AddHistogram(name, help, buckets);
  absl::MutexLock lock(&mutex_);
  return traced_.try_emplace(name, histogram, buckets).first->second;
}

ExemplarsByName Metrics::Exemplars() const {
  ExemplarsByName exemplars;
  absl::MutexLock lock(&mutex_);
  for (const auto& [name, histogram] : traced_) exemplars[name] = histogram.Exemplars();
  return exemplars;
}

}  // namespace foretoken::telemetry
