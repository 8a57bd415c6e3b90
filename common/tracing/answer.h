// SPDX-License-Identifier: Apache-2.0
// What a collector answers when it takes a batch, by gRPC or HTTP.
#pragma once

#include <string>

#include "common/tracing/span_exporter.h"

namespace foretoken::tracing {

// Reads the bytes of an ExportTraceServiceResponse, plain or in gzip. If they are none, the batch counts as delivered:
// the collector took it, and it need not say more.
SendResult ReadAnswer(const std::string& bytes);

// The result for an answer of more than kMaxResponseBytes. The collector may have taken the batch, so it does not get
// the batch again.
SendResult TooLongAnswer();

}  // namespace foretoken::tracing
