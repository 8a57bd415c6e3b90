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
#include "absl/time/time.h"
#include "common/telemetry/metrics.h"
#include "prometheus/metric_family.h"

namespace foretoken::telemetry {

// Serves until it is destroyed.
class MetricsServer {
 public:
  using Families = std::vector<prometheus::MetricFamily>;
  // Returns families for the page. `above` are the families that the page has already.
  using Collect = std::function<Families(const Families& above)>;

  // At a time. A further one closes the oldest of them that has not sent its whole request, or else the oldest.
  static constexpr size_t kMaxConnections = 16;
  static constexpr absl::Duration kMaxTime = absl::Seconds(5);  // of a connection, from its begin to the page's end
  static constexpr int kMaxRequestBytes = 16 << 10;

  // `address` is HOST:PORT; port 0 takes a free one. A name is all its addresses that this machine has. The hosts
  // "0.0.0.0" and "[::]" are all addresses of IPv4 and IPv6, as they are for gRPC. `metrics` outlive the server.
  // Errors: INVALID_ARGUMENT or UNAVAILABLE, with the address.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address, const Metrics& metrics);
  ~MetricsServer();

  // Calls `collect` for every page. What it uses outlives the server.
  void Add(Collect collect);
  int port() const { return port_; }

 private:
  class Connection;
  struct Listener;

  explicit MetricsServer(const Metrics& metrics);

  Families CollectAll() const;

  const Metrics& metrics_;
  mutable absl::Mutex mutex_;
  std::vector<Collect> collects_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Listener> listener_;
  int port_ = 0;
};

}  // namespace foretoken::telemetry
