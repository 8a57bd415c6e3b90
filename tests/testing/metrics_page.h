// SPDX-License-Identifier: Apache-2.0
// What a service's GET /metrics says now.
//
//   FT_ASSIGN_OR_RETURN(const MetricsPage page, ReadMetrics(port));
//   page.at("foretoken_steps_total"); page.at("foretoken_step_seconds_total{part=\"draw\"}");
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken::testing {

// Values by name and labels, spelled as on the page.
using MetricsPage = std::map<std::string, double>;

// Of 127.0.0.1. UNAVAILABLE when nobody answers with a page.
absl::StatusOr<MetricsPage> ReadMetrics(int port);

// Of all labels; 0 where the page has none.
double SumOf(const MetricsPage& page, absl::string_view name);

// The lines of Prometheus' text format; comments and what is no number are left out.
MetricsPage ParseMetrics(absl::string_view text);

}  // namespace foretoken::testing
