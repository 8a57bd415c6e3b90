// SPDX-License-Identifier: Apache-2.0
// Writes spans as text, for a look at them without a collector. Each batch is a line of OTLP's JSON. If nobody reads a
// pipe, the batch is refused after its time, and its line may be cut.
#pragma once

#include "common/tracing/span_exporter.h"

namespace foretoken::tracing {

// `fd` is open for writing as long as the sender lives.
SendBatch MakeConsoleSender(int fd);

}  // namespace foretoken::tracing
