// SPDX-License-Identifier: Apache-2.0
// What Prometheus is told: the engine's counters, read when it asks, and what clients wait for.
//
// Units: seconds, tokens. Threads: any.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "prometheus/collectable.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"
#include "verifier_service/engine.h"
#include "verifier_service/proposer_pool.h"

namespace foretoken::verifier {

// What calls observe.
class CallMetrics {
 public:
  // The registry must outlive it.
  explicit CallMetrics(prometheus::Registry& registry);

  void ObserveFirstToken(double seconds) { first_token_.Observe(seconds); }
  // `num_tokens` came together, `seconds` after those before.
  void ObserveTokens(double seconds, size_t num_tokens);
  void CountCall(absl::StatusCode code);

 private:
  prometheus::Histogram& first_token_;
  prometheus::Histogram& inter_token_;
  prometheus::Family<prometheus::Counter>& calls_;
};

// The engine's counters and gauges, and the proposer pool's, at the time of a scrape.
class EngineCollector : public prometheus::Collectable {
 public:
  // Both outlive it.
  EngineCollector(const Engine& engine, const ProposerPool& pool) : engine_(engine), pool_(pool) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Engine& engine_;
  const ProposerPool& pool_;
};

}  // namespace foretoken::verifier
