// SPDX-License-Identifier: Apache-2.0
// The HTTP endpoint of a service's metrics: GET or HEAD /metrics, in the OpenMetrics format for a client that accepts
// it, and else in Prometheus's text format.
//
//   FT_ASSIGN_OR_RETURN(std::unique_ptr<MetricsServer> server, MetricsServer::Start("0.0.0.0:9464", metrics));
//   server->Add([&] { return engine_families(); });
//
// Threads: any.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/telemetry/metrics.h"
#include "prometheus/metric_family.h"

struct mg_context;
struct mg_connection;

namespace foretoken::telemetry {

// Serves until it is destroyed.
class MetricsServer {
 public:
  using Families = std::vector<prometheus::MetricFamily>;
  // Returns families for the page. `above` are the families that the page has already.
  using Collect = std::function<Families(const Families& above)>;

  static constexpr int kMaxConnections = 2;   // served at a time
  static constexpr int kMaxRequestMs = 5000;  // until a request is read

  // `address` is HOST:PORT; port 0 takes a free one. `metrics` outlive the server. Errors: UNAVAILABLE with the
  // address.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address, const Metrics& metrics);
  ~MetricsServer();

  // Calls `collect` for every page. What it uses outlives the server.
  void Add(Collect collect);
  int port() const { return port_; }

 private:
  explicit MetricsServer(const Metrics& metrics) : metrics_(metrics) {}

  static int Answer(mg_connection* connection, void* server);
  Families CollectAll() const;

  const Metrics& metrics_;
  mg_context* context_ = nullptr;
  int port_ = 0;
  mutable absl::Mutex mutex_;
  std::vector<Collect> collects_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace foretoken::telemetry
