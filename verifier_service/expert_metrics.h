// SPDX-License-Identifier: Apache-2.0
// The metrics of the memory for experts, of a model that has experts.
#pragma once

#include <vector>

#include "common/model/expert_store.h"
#include "prometheus/metric_family.h"

namespace foretoken::verifier {

std::vector<prometheus::MetricFamily> CollectExpertMetrics(const model::ExpertUse& use);

}  // namespace foretoken::verifier
