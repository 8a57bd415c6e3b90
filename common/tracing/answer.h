// SPDX-License-Identifier: Apache-2.0
// What a collector answers when it takes a batch, by gRPC or HTTP.
#pragma once

#include <string>

#include "common/tracing/span_exporter.h"

namespace foretoken::tracing {

// Reads the bytes of an ExportTraceServiceResponse, plain or in gzip. If they are none, the batch counts as delivered:
// the collector took it. But a web page or a gateway may answer everything with 200, so the message says what came.
SendResult ReadAnswer(const std::string& bytes);

// The result for an answer of more than kMaxResponseBytes. The collector may have taken the batch, so it does not get
// the batch again.
SendResult TooLongAnswer();

}  // namespace foretoken::tracing
