// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/metrics.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"

namespace foretoken::telemetry {

prometheus::Counter& Metrics::AddCounter(const std::string& name, const std::string& help,
                                         const prometheus::Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry_).Add(labels);
}

prometheus::Gauge& Metrics::AddGauge(const std::string& name, const std::string& help,
                                     const prometheus::Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(*registry_).Add(labels);
}

prometheus::Histogram& Metrics::AddHistogram(const std::string& name, const std::string& help,
                                             const prometheus::Histogram::BucketBoundaries& buckets,
                                             const prometheus::Labels& labels) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_).Add(labels, buckets);
}

MetricsServer::MetricsServer(std::unique_ptr<prometheus::Exposer> exposer)
    : exposer_(std::move(exposer)), port_(exposer_->GetListeningPorts().front()) {}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    const Metrics& metrics) {
  std::unique_ptr<prometheus::Exposer> exposer;
  try {
    exposer = std::make_unique<prometheus::Exposer>(address);
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrCat("metrics: cannot listen on '", address, "': ", e.what()));
  }
  exposer->RegisterCollectable(metrics.registry());
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(exposer)));
}

}  // namespace foretoken::telemetry
