// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/expert_metrics.h"

namespace foretoken::verifier {

std::vector<prometheus::MetricFamily> CollectExpertMetrics(const model::ExpertUse& use) {
  std::vector<prometheus::MetricFamily> families(2);
  prometheus::MetricFamily& loads = families[0];
  loads.type = prometheus::MetricType::Counter;
  loads.name = "foretoken_expert_loads_total";
  loads.help = "Experts that steps read from the model's files, because they were not in memory.";
  loads.metric.emplace_back().counter.value = static_cast<double>(use.num_loads);
  prometheus::MetricFamily& bytes = families[1];
  bytes.type = prometheus::MetricType::Gauge;
  bytes.name = "foretoken_expert_bytes";
  bytes.help = "Bytes of the packed experts in memory.";
  bytes.metric.emplace_back().gauge.value = static_cast<double>(use.num_bytes);
  return families;
}

}  // namespace foretoken::verifier
