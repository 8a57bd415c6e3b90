// SPDX-License-Identifier: Apache-2.0
// The verifier's metrics under the names that vLLM gives them, with its labels. Dashboards, alerts and schedulers that
// were made for vLLM then work with this server. Our own metrics stay as they are.
//
// The values are those of our own families at the same scrape. Buckets of histograms are ours.
// Source of the names: vLLM's documentation of its metrics.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prometheus/metric_family.h"

namespace foretoken::verifier {

// What vLLM shows as labels of vllm:cache_config_info.
struct CacheConfig {
  int32_t num_blocks = 0;
  int32_t block_size = 0;  // positions
  bool has_prefix_cache = false;
};

// Returns vLLM's families for the verifier's own ones. A family whose source is missing is left out.
std::vector<prometheus::MetricFamily> ToVllm(const std::vector<prometheus::MetricFamily>& own, const std::string& model,
                                             const CacheConfig& cache);

}  // namespace foretoken::verifier
