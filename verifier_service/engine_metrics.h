// SPDX-License-Identifier: Apache-2.0
// The metrics of the engine for Prometheus, read at every scrape. Units: seconds, tokens. Threads: any.
#pragma once

#include <vector>

#include "prometheus/metric_family.h"
#include "verifier_service/api/unread_outputs.h"
#include "verifier_service/engine/engine.h"
#include "verifier_service/proposers/proposer_pool.h"

namespace foretoken::verifier {

// The counters and gauges of the engine, of the proposer pool and of unread output, as they are now.
std::vector<prometheus::MetricFamily> CollectEngineMetrics(const Engine& engine, const ProposerPool& pool,
                                                           const UnreadOutputs& unread);

}  // namespace foretoken::verifier
