// SPDX-License-Identifier: Apache-2.0
// Prometheus metrics: a registry that makes counters, gauges and histograms, and the HTTP endpoint that serves them.
//
//   Metrics metrics;
//   prometheus::Counter& trees = metrics.AddCounter("foretoken_proposer_sent_trees_total", "Trees sent.");
//   trees.Increment();
//   FT_ASSIGN_OR_RETURN(std::unique_ptr<MetricsServer> server, MetricsServer::Start("0.0.0.0:9464", metrics));
//
// Names are foretoken_..., with the unit as suffix, and _total on counters.
// Threads: any. The references that Add returns live as long as the registry.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "prometheus/collectable.h"
#include "prometheus/counter.h"
#include "prometheus/exposer.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace foretoken::telemetry {

class Metrics {
 public:
  Metrics() : registry_(std::make_shared<prometheus::Registry>()) {}

  // The same name and labels give the same metric.
  prometheus::Counter& AddCounter(const std::string& name, const std::string& help,
                                  const prometheus::Labels& labels = {});
  prometheus::Gauge& AddGauge(const std::string& name, const std::string& help, const prometheus::Labels& labels = {});
  prometheus::Histogram& AddHistogram(const std::string& name, const std::string& help,
                                      const prometheus::Histogram::BucketBoundaries& buckets,
                                      const prometheus::Labels& labels = {});

  // Shared, because the exposer's threads read it.
  const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }

 private:
  std::shared_ptr<prometheus::Registry> registry_;
};

// Serves GET /metrics on a port of its own until it is destroyed.
class MetricsServer {
 public:
  // `address` is HOST:PORT; port 0 takes a free one. Errors: UNAVAILABLE with the address.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address, const Metrics& metrics);
  // Serves this collector's metrics too, as long as the collector lives.
  void Add(const std::weak_ptr<prometheus::Collectable>& collectable) { exposer_->RegisterCollectable(collectable); }
  int port() const { return port_; }

 private:
  explicit MetricsServer(std::unique_ptr<prometheus::Exposer> exposer);

  std::unique_ptr<prometheus::Exposer> exposer_;
  int port_;
};

}  // namespace foretoken::telemetry
