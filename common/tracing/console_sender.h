// SPDX-License-Identifier: Apache-2.0
// Writes spans as text, for a look at them without a collector. Each batch is a line of OTLP's JSON.
#pragma once

#include <ostream>

#include "common/tracing/span_exporter.h"

namespace foretoken::tracing {

// `out` outlives the sender.
SendBatch MakeConsoleSender(std::ostream& out);

}  // namespace foretoken::tracing
