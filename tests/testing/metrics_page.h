// SPDX-License-Identifier: Apache-2.0
// Reads a service's metrics page, GET /metrics.
//
//   FT_ASSIGN_OR_RETURN(const MetricsPage page, ReadMetrics(port));
//   page.at("foretoken_steps_total"); page.at("foretoken_step_seconds_total{part=\"draw\"}");
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken::testing {

// Values by name with labels, spelled as on the page.
using MetricsPage = std::map<std::string, double>;

// Reads the page of 127.0.0.1:`port`. UNAVAILABLE if no server answers with a page.
absl::StatusOr<MetricsPage> ReadMetrics(int port);

// Sums over all labels. 0 if the page does not have the metric.
double SumOf(const MetricsPage& page, absl::string_view name);

// Parses the lines of Prometheus' text format. Skips comments and values that are not numbers.
MetricsPage ParseMetrics(absl::string_view text);

}  // namespace foretoken::testing
